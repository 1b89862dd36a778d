"""Which faults of the driver mean that the database is away, and not that a statement was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from siteatlas.errors import DatabaseUnavailable

AWAY_CLASSES = ("08", "53", "57P", "58")
READ_ONLY = "25006"


def is_database_away(error: BaseException) -> bool:
    """Connection refused or cut, server stopping, out of connections or disk, read-only."""
    if isinstance(error, (OSError, TimeoutError, PoolTimeout, InterfaceError)):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return error.connection_invalidated or state == READ_ONLY or state.startswith(AWAY_CLASSES)


@contextmanager
def translated_faults() -> Iterator[None]:
    """Raise DatabaseUnavailable in place of the many ways in which drivers say it."""
    try:
        yield
    except Exception as error:
        if is_database_away(error):
            raise DatabaseUnavailable from error
        raise
