"""Which driver errors mean that the database is unavailable rather than that a statement failed.

Also owns the messages for operators: which database was tried, and what it answered.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from asyncpg import ClientConfigurationError, InternalClientError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from siteatlas.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseConnectionsExhausted,
    DatabaseError,
    DatabaseFull,
    DatabasePoolExhausted,
    DatabaseReadOnly,
    DatabaseRefused,
    DatabaseRightsMissing,
    DatabaseTimeout,
    DatabaseTlsFailed,
    DatabaseUnavailable,
    SchemaOutdated,
    SiteatlasError,
)
from siteatlas.storage.database_url import parse_database_url

DEFAULT_PORT = 5432

AWAY_CLASSES = ("08", "53", "57P", "58")
# The error for each SQLSTATE, or for a class of them (its first two characters).
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
# Errors that share a SQLSTATE with others, or have none: the message decides. A pooler uses one
# state, 08P01, for everything that it refuses.
SPOKEN: tuple[tuple[re.Pattern[str], type[DatabaseError]], ...] = (
    (re.compile("rejected SSL upgrade|SSL required|TLS required"), DatabaseTlsFailed),
    (
        re.compile("is not currently accepting connections|does not allow connections"),
        DatabaseRefused,
    ),
    (re.compile("no more connections allowed|too many clients"), DatabaseConnectionsExhausted),
    (
        re.compile(
            "authentication failed|login failed|login rejected|no such (?:user|database)"
            '|not allowed to (?:login|connect)|(?:database|role) ".*" does not exist'
        ),
        DatabaseRefused,
    ),
)
SPOKEN_STATES = ("", "08P01", "55000")
# Messages for the operator, with the server and the reason.
LOCATED: dict[type[DatabaseError], str] = {
    DatabaseUnavailable: "The database at {where} cannot be reached: {why}.",
    DatabaseRefused: "The database at {where} denied access: {why}.",
    DatabaseTlsFailed: "The TLS connection to the database at {where} failed: {why}.",
}


def is_database_away(error: BaseException) -> bool:
    """Whether the connection was refused or lost, or the server is stopping or out of resources.

    The driver raises an internal error for a connection that was lost between two statements.
    """
    if isinstance(error, (OSError, TimeoutError, PoolTimeout, InternalClientError)):
        return True
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or _sqlstate(error).startswith(AWAY_CLASSES)


def _sqlstate(error: DBAPIError) -> str:
    """The SQLSTATE of a driver error; empty if it has none."""
    return str(getattr(error.orig, "sqlstate", None) or "")


def translated(error: Exception) -> SiteatlasError | None:
    """Our own error for a fault of the database itself; None for an invalid statement."""
    if isinstance(error, SiteatlasError):
        return None
    if isinstance(error, PoolTimeout):
        return DatabasePoolExhausted()
    first = _driver_error(error)
    if isinstance(first, ClientConfigurationError):
        return ConfigurationError(f"DATABASE_URL is invalid: {_driver_message(first)}.")
    if isinstance(first, ssl.SSLError):
        return DatabaseTlsFailed()
    own = _meaning(error, first)
    return own or (DatabaseUnavailable() if is_database_away(error) else None)


def _meaning(error: Exception, first: BaseException) -> DatabaseError | None:
    """Our own error for a driver error: by its message if the SQLSTATE is ambiguous."""
    state = _sqlstate(error) if isinstance(error, DBAPIError) else ""
    if state in SPOKEN_STATES and (is_database_away(error) or state == "55000"):
        for words, kind in SPOKEN:
            if words.search(str(first)):
                return kind()
    return meaning_of_state(state)


def _driver_error(error: BaseException) -> BaseException:
    """The error of the database driver at the end of a chain of causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def meaning_of_state(state: str) -> DatabaseError | None:
    """Our own error for a SQLSTATE; None if it stands for an invalid statement."""
    for states, kind in MEANINGS.items():
        if state.startswith(states):
            return kind()
    return DatabaseUnavailable() if state.startswith(AWAY_CLASSES) else None


@contextmanager
def translated_faults() -> Iterator[None]:
    """Raise our own errors for the many errors by which drivers report an unavailable database."""
    try:
        yield
    except Exception as error:
        own = translated(error)
        if own is None:
            raise
        raise own from error


@contextmanager
def located_faults(url: str) -> Iterator[None]:
    """Add the server and the reason to the error of an unavailable database.

    Only for the operator of this process: others must not see the address.
    """
    try:
        yield
    except DatabaseUnavailable as error:
        kind = type(error)
        if kind not in LOCATED or error.message != kind().message or error.__cause__ is None:
            raise
        raise kind(LOCATED[kind].format(where=server_of(url), why=reason_of(error))) from error


def server_of(url: str) -> str:
    """The host and port in a database address, without user and password."""
    address = parse_database_url(url)
    host = address.host or address.query.get("host") or "localhost"
    port = address.port or address.query.get("port") or DEFAULT_PORT
    return f"{host}:{port}"


def reason_of(error: BaseException) -> str:
    """Why a connection failed, in the words of the operating system or the server."""
    first = _driver_error(error)
    if isinstance(first, TimeoutError):
        return "no response in time"
    if isinstance(first, ssl.SSLError):
        return _database_tls_reason(first)
    if isinstance(first, OSError) and first.errno is not None and first.errno > 0:
        return os.strerror(first.errno)
    return _driver_message(first)


def _database_tls_reason(error: ssl.SSLError) -> str:
    """Why the TLS connection to the database failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message.rstrip('.')})"
    return (error.reason or str(error)).replace("_", " ").lower()


def _driver_message(error: BaseException) -> str:
    """The message of the database driver, without a period at its end."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).rstrip(".")
