"""Which faults of the driver mean that the database is away, and not that a statement was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from siteatlas.errors import DatabaseBusy, DatabaseRefused, DatabaseUnavailable

AWAY_CLASSES = ("08", "53", "57P", "58")
READ_ONLY = "25006"
REFUSED_CLASSES = ("28", "3D")
# Serialization failure, deadlock, lock not available, statement timeout.
BUSY_STATES = ("40001", "40P01", "55P03", "57014")


def is_database_away(error: BaseException) -> bool:
    """Connection refused or cut, server stopping, out of connections or disk, read-only."""
    if isinstance(error, (OSError, TimeoutError, PoolTimeout, InterfaceError)):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = _state(error)
    return error.connection_invalidated or state == READ_ONLY or state.startswith(AWAY_CLASSES)


def is_database_refusing(error: BaseException) -> bool:
    """Wrong user or password, or no database of this name."""
    return isinstance(error, DBAPIError) and _state(error).startswith(REFUSED_CLASSES)


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


@contextmanager
def translated_faults() -> Iterator[None]:
    """Raise our own errors in place of the many ways in which drivers say that it is away."""
    try:
        yield
    except Exception as error:
        if isinstance(error, DBAPIError) and _state(error) in BUSY_STATES:
            raise DatabaseBusy from error
        if is_database_refusing(error):
            raise DatabaseRefused from error
        if is_database_away(error):
            raise DatabaseUnavailable from error
        raise
