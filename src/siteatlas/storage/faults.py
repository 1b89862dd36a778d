"""Which faults of the driver mean that the database is away, and not that a statement was wrong."""

from __future__ import annotations

import os
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
from siteatlas.storage.database_url import parse_database_url

DEFAULT_PORT = 5432

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


@contextmanager
def located_faults(url: str) -> Iterator[None]:
    """Say of a database that is away where it was looked for and why it did not answer.

    Only for the operator of this process: the address is nobody else's business.
    """
    try:
        yield
    except DatabaseUnavailable as error:
        if type(error) is not DatabaseUnavailable or error.message != DatabaseUnavailable().message:
            raise
        where, why = server_of(url), reason_of(error)
        raise DatabaseUnavailable(f"The database at {where} cannot be reached: {why}.") from error


def server_of(url: str) -> str:
    """The host and port in a database address, without user and password."""
    address = parse_database_url(url)
    host = address.host or address.query.get("host") or "localhost"
    port = address.port or address.query.get("port") or DEFAULT_PORT
    return f"{host}:{port}"


def reason_of(error: BaseException) -> str:
    """Why a connection failed, as the operating system or the server said it."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    if isinstance(first, TimeoutError):
        return "no answer in time"
    if isinstance(first, OSError) and first.errno is not None and first.errno > 0:
        return os.strerror(first.errno)
    text = getattr(first, "strerror", None) or str(first) or type(first).__name__
    return str(text).rstrip(".")
