"""Which faults of the driver mean that the database is away, and not that a statement was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from asyncpg import InternalClientError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from siteatlas.errors import (
    DatabaseBusy,
    DatabaseConnectionsExhausted,
    DatabaseError,
    DatabaseFull,
    DatabasePoolExhausted,
    DatabaseReadOnly,
    DatabaseRefused,
    DatabaseRightsMissing,
    DatabaseTimeout,
    DatabaseUnavailable,
    SchemaOutdated,
)

AWAY_CLASSES = ("08", "53", "57P", "58")
# What the states of SQL (or the first two signs of their classes) mean to us.
MEANINGS: dict[tuple[str, ...], type[DatabaseError]] = {
    ("40001", "40P01", "55P03"): DatabaseBusy,  # serialization failure, deadlock, lock wait
    ("57014",): DatabaseTimeout,
    ("28", "3D"): DatabaseRefused,
    ("42501",): DatabaseRightsMissing,
    ("25006",): DatabaseReadOnly,
    ("53100",): DatabaseFull,
    ("53300",): DatabaseConnectionsExhausted,
    ("42P01", "42703"): SchemaOutdated,  # a table or column that we know is not there
}


def is_database_away(error: BaseException) -> bool:
    """Connection refused or cut, server stopping or out of its means.

    The driver loses track of a connection that was cut while nothing was asked: its internal error.
    """
    if isinstance(error, (OSError, TimeoutError, PoolTimeout, InternalClientError)):
        return True
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or _state(error).startswith(AWAY_CLASSES)


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def translated(error: Exception) -> DatabaseError | None:
    """Our own error for a fault of the database itself; None when a statement was wrong."""
    if isinstance(error, PoolTimeout):
        return DatabasePoolExhausted()
    own = meaning_of_state(_state(error)) if isinstance(error, DBAPIError) else None
    return own or (DatabaseUnavailable() if is_database_away(error) else None)


def meaning_of_state(state: str) -> DatabaseError | None:
    """Our own error for a state of SQL; None when it says that a statement was wrong."""
    for states, kind in MEANINGS.items():
        if state.startswith(states):
            return kind()
    return DatabaseUnavailable() if state.startswith(AWAY_CLASSES) else None


@contextmanager
def translated_faults() -> Iterator[None]:
    """Raise our own errors in place of the many ways in which drivers say that it is away."""
    try:
        yield
    except Exception as error:
        own = translated(error)
        if own is None:
            raise
        raise own from error
