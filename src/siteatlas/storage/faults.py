"""Which faults of the driver mean that the database is away, and not that a statement was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from siteatlas.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseRefused,
    DatabaseTimeout,
    DatabaseUnavailable,
)

AWAY_CLASSES = ("08", "53", "57P", "58")
READ_ONLY = "25006"
REFUSED_CLASSES = ("28", "3D")
# Serialization failure, deadlock, lock not available.
BUSY_STATES = ("40001", "40P01", "55P03")
STATEMENT_TIMEOUT = "57014"


def is_database_away(error: BaseException) -> bool:
    """Connection refused or cut, server stopping, out of connections or disk, read-only."""
    if isinstance(error, (OSError, TimeoutError, PoolTimeout)):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = _state(error)
    return error.connection_invalidated or state == READ_ONLY or state.startswith(AWAY_CLASSES)


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def translated(error: Exception) -> DatabaseError | None:
    """Our own error for a fault of the database itself; None when a statement was wrong."""
    if isinstance(error, DBAPIError):
        state = _state(error)
        if state in BUSY_STATES:
            return DatabaseBusy()
        if state == STATEMENT_TIMEOUT:
            return DatabaseTimeout()
        if state.startswith(REFUSED_CLASSES):
            return DatabaseRefused()
    return DatabaseUnavailable() if is_database_away(error) else None


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
