"""Engines: connection pools that work behind a transaction pooler, and what their errors mean.

Owns the driver arguments, the checks of pooled connections, the reading of DATABASE_URL and the
translation of driver errors into ours. `session` owns sessions, and decides how many connections
each kind of work may use.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import asyncpg
from asyncpg import (
    ClientConfigurationError,
    InterfaceError,
    InternalClientError,
    PostgresError,
)
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

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
from siteatlas.meters import meters
from siteatlas.settings import MAX_PORT

APPLICATION_NAME = "siteatlas"
# Of backup and restore, whose statements may wait for their client.
BACKUP_NAME = "siteatlas-backup"
DRIVER = "postgresql+asyncpg"

TLS_REJECTED = "rejected SSL upgrade"
COMMAND_SECONDS = 60
POOL_WAIT_SECONDS = 10
# Connections that were idle this long are checked before use: something between here and the
# server may have dropped them. An idle worker uses its connection every five seconds.
CHECK_AFTER_SECONDS = 10


def create_engine(
    url: str,
    *,
    pool_size: int,
    pool_overflow: int,
    behind_pooler: bool,
    standing_limits: Mapping[str, str],
) -> AsyncEngine:
    """An engine whose connections have the `standing_limits`; none can be set behind a pooler.

    `no_prepare` is required by the standard that this engine follows; neither driver reads it.
    """
    connect_args: dict[str, Any] = {
        "timeout": 10,
        "command_timeout": COMMAND_SECONDS,
        "server_settings": {"application_name": APPLICATION_NAME, **standing_limits},
        "connection_class": DriverConnection,
    }
    if tls := tls_address(url):
        connect_args["dsn"] = tls
    if behind_pooler:
        connect_args |= {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
    try:
        engine = create_async_engine(
            parse_database_url(url),
            pool_size=pool_size,
            max_overflow=pool_overflow,
            pool_timeout=POOL_WAIT_SECONDS,
            pool_recycle=300,
            pool_use_lifo=True,
            execution_options={"no_prepare": True},
            hide_parameters=True,
            connect_args=connect_args,
        )
    except ArgumentError as error:
        raise ConfigurationError(f"DATABASE_URL is invalid: {error}.") from error
    event.listen(engine.sync_engine, "checkin", _drop_unused_limits)
    if behind_pooler:
        event.listen(engine.sync_engine, "checkin", _remember_return)
        event.listen(engine.sync_engine, "checkout", _require_working_connection)
    return engine


def _drop_unused_limits(connection: Any, _record: ConnectionPoolEntry) -> None:
    """Forget the limits of a transaction without statements: they are not for the next one."""
    if connection is not None:
        connection.driver_connection.next_limits = ""


def _remember_return(_connection: Any, record: ConnectionPoolEntry) -> None:
    record.info["returned_at"] = time.monotonic()


def _require_working_connection(
    connection: Any, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection
) -> None:
    """Make the pool replace a connection that is closed, or that was unused and does not answer.

    A server or a pooler that shuts down closes its connections, which shows without a query. The
    check of the pool itself (`pool_pre_ping`) takes three statements before each transaction.
    """
    returned_at = record.info.get("returned_at")
    if returned_at is None:
        return
    is_unused = time.monotonic() - returned_at > CHECK_AFTER_SECONDS
    if connection.driver_connection.is_closed() or (is_unused and not _answers(connection)):
        raise InvalidatePoolError


def _answers(connection: Any) -> bool:
    try:
        connection.run_async(_run_check)
    except (PostgresError, InterfaceError, OSError):
        return False
    return True


async def _run_check(connection: asyncpg.Connection) -> None:
    """Run the usual statement that checks a connection; asyncpg cannot run an empty one."""
    await connection.execute("SELECT 1")


_built_in_types: dict[frozenset[int], Sequence[Any]] = {}


@dataclass(frozen=True, slots=True)
class NoStatement:
    """Stands for the query of asyncpg that was not sent.

    Its name tells asyncpg that the statement it had prepared before is still there.
    """

    name: str = "none"


class DriverConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection that saves round trips.

    It sends the limits of a transaction together with its BEGIN: a separate statement would cost
    two more round trips, because it is not kept prepared. And it asks for the description of
    built-in types, such as arrays of numbers, once per process instead of once per connection:
    that query takes the server longer than most of ours.
    """

    next_limits = ""

    async def execute(self, query: str, *args: Any, **options: Any) -> Any:
        """Run a command. The transactions of asyncpg, and so of SQLAlchemy, begin with one."""
        if self.next_limits and query.startswith("BEGIN"):
            query, self.next_limits = query + self.next_limits, ""
        return await super().execute(query, *args, **options)

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float | None,  # noqa: ASYNC109 - the signature of asyncpg
    ) -> tuple[Sequence[Any], Any]:
        """The description of types that this connection has not used yet.

        Overrides a private method: if asyncpg renames it, every connection asks again.
        """
        wanted = frozenset(typeoids)
        if wanted in _built_in_types:
            return _built_in_types[wanted], NoStatement()
        found, statement = await super()._introspect_types(wanted, timeout)
        # Smaller ids are assigned by hand in the sources of PostgreSQL, the same in every version.
        first_unstable = 10_000
        if max(wanted) < first_unstable:
            _built_in_types[wanted] = found
        return found, statement


def parse_database_url(text: str) -> URL:
    """Accept `postgres://` and `postgresql://`, with `sslmode`; drop options of other drivers.

    TLS files are left to `tls_address`.
    """
    url = _split_database_url(text)
    if url.drivername not in {"postgres", "postgresql", DRIVER}:
        raise ConfigurationError("DATABASE_URL must begin with postgresql://.")
    if not url.database:
        raise ConfigurationError("DATABASE_URL does not name a database.")
    _check_database_host(url.host or "")
    _check_database_ports(url)
    query = {key: value for key, value in url.query.items() if key in {"host", "port", "ssl"}}
    mode = url.query.get("sslmode")
    if mode is not None:
        if mode not in {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}:
            raise ConfigurationError(f"DATABASE_URL has an unknown sslmode: {mode}.")
        query["ssl"] = str(mode)
    return url.set(drivername=DRIVER, query=query)


def _split_database_url(text: str) -> URL:
    # What follows the first `@` of a password would be taken, and shown, as the host.
    if text.partition("?")[0].count("@") > 1:
        raise ConfigurationError(
            "DATABASE_URL contains more than one @: write an @ in the password as %40, and encode "
            "other special characters like it."
        )
    try:
        return make_url(text)
    except ArgumentError as error:
        raise ConfigurationError("DATABASE_URL is not a valid database URL.") from error
    except ValueError as error:
        raise ConfigurationError("The port in DATABASE_URL is not a number.") from error


def _check_database_host(host: str) -> None:
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ConfigurationError("The host in DATABASE_URL is not a valid host name.") from error


def _check_database_ports(url: URL) -> None:
    ports = [str(url.port)] if url.port is not None else []
    given = url.query.get("port", ())
    ports += given.split(",") if isinstance(given, str) else given
    for port in ports:
        if not (port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT):
            raise ConfigurationError(
                f"The port in DATABASE_URL must be a number from 1 to {MAX_PORT}, not {port}."
            )


def tls_address(text: str) -> str | None:
    """The TLS options of DATABASE_URL in the form that the driver accepts; None without any.

    The files are read once, because the driver's own errors would not say which of them is wrong.
    """
    query = _split_database_url(text).query
    # What the driver takes from an address only, not as arguments.
    files = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
    names = (*files, "sslpassword", "ssl_min_protocol_version", "ssl_max_protocol_version")
    given = {name: str(query[name]) for name in names if name in query}
    if not given:
        return None
    if given.get("sslrootcert") == "system":
        raise ConfigurationError(
            "sslrootcert=system in DATABASE_URL is not supported. Name the file with the "
            "certificates, such as /etc/ssl/certs/ca-certificates.crt."
        )
    for name in files:
        if name in given:
            _check_readable(name, given[name])
    _check_certificates(given)
    return f"postgresql:///?{urlencode(given)}"


def _check_certificates(given: Mapping[str, str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in ("sslrootcert", "sslcrl"):
        try:
            if name in given:
                context.load_verify_locations(cafile=given[name])
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{name} in DATABASE_URL cannot be used: {given[name]} holds nothing of that kind "
                "in PEM format."
            ) from error
    if "sslcert" in given:
        _check_client_certificate(context, given)


def _check_readable(name: str, path: str) -> None:
    try:
        with open(path, "rb"):  # noqa: PTH123 a path as libpq has it, not one of ours
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{name} in DATABASE_URL cannot be read: {path}: {error.strerror}."
        ) from error


def _check_client_certificate(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    secret = given.get("sslpassword", "")
    try:
        context.load_cert_chain(given["sslcert"], given.get("sslkey"), lambda: secret)
    except ssl.SSLError as error:
        raise ConfigurationError(
            "sslcert and sslkey in DATABASE_URL cannot be used together: "
            f"{error.reason or 'the certificate or its key cannot be read'}."
        ) from error


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
    """The error for a SQLSTATE, or for the message where several errors share one or have none.

    A pooler uses one state, 08P01, for everything that it refuses.
    """
    refused = (
        "authentication failed|login failed|login rejected|no such (?:user|database)"
        '|not allowed to (?:login|connect)|(?:database|role) ".*" does not exist'
    )
    spoken: tuple[tuple[str, type[DatabaseError]], ...] = (
        (f"{TLS_REJECTED}|SSL required|TLS required", DatabaseTlsFailed),
        ("is not currently accepting connections|does not allow connections", DatabaseRefused),
        ("no more connections allowed|too many clients", DatabaseConnectionsExhausted),
        (refused, DatabaseRefused),
    )
    state = _sqlstate(error) if isinstance(error, DBAPIError) else ""
    if state in ("", "08P01", "55000") and (is_database_away(error) or state == "55000"):
        for words, kind in spoken:
            if re.search(words, str(first)):
                return kind()
    return meaning_of_state(state)


def meaning_of_state(state: str) -> DatabaseError | None:
    """Our own error for a SQLSTATE; None if it stands for an invalid statement."""
    # By state, or by a class of them (its first two characters).
    meanings: dict[tuple[str, ...], type[DatabaseError]] = {
        ("40001", "40P01", "55P03"): DatabaseBusy,  # serialization failure, deadlock, lock wait
        ("57014",): DatabaseTimeout,
        ("28", "3D"): DatabaseRefused,
        ("42501",): DatabaseRightsMissing,
        ("25006",): DatabaseReadOnly,
        ("53100",): DatabaseFull,
        ("53300",): DatabaseConnectionsExhausted,
        ("42P01", "42703"): SchemaOutdated,  # a table or column that we know is not there
    }
    for states, kind in meanings.items():
        if state.startswith(states):
            if kind is DatabaseFull:
                meters.disk_full_until = meters.clock() + 60.0
            return kind()
    return DatabaseUnavailable() if _means_away(state) else None


def is_database_away(error: BaseException) -> bool:
    """Whether the connection was refused or lost, or the server is stopping or out of resources.

    The driver raises an internal error for a connection that was lost between two statements.
    """
    if isinstance(error, (OSError, TimeoutError, PoolTimeout, InternalClientError)):
        return True
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or _means_away(_sqlstate(error))


def _means_away(state: str) -> bool:
    return state.startswith(("08", "53", "57P", "58"))


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def _driver_error(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def located_faults(url: str) -> Iterator[None]:
    """Add the server and the reason to the error of an unavailable database.

    Only for the operator of this process: others must not see the address.
    """
    try:
        yield
    except DatabaseUnavailable as error:
        kind, why = type(error), reason_of(error)
        mode = parse_database_url(url).query.get("ssl", "prefer")
        if mode in {"allow", "prefer"} and TLS_REJECTED in str(_driver_error(error)):
            # PostgreSQL would have said that it has no TLS, and the driver would go on without it.
            kind, why = DatabaseUnavailable, "what answers there is not a PostgreSQL server"
        messages: dict[type[DatabaseError], str] = {
            DatabaseUnavailable: "The database at {where} cannot be reached: {why}.",
            DatabaseRefused: "The database at {where} denied access: {why}.",
            DatabaseTlsFailed: "The TLS connection to the database at {where} failed: {why}.",
        }
        if kind not in messages or error.message != type(error)().message or not error.__cause__:
            raise
        raise kind(messages[kind].format(where=server_of(url), why=why)) from error


def server_of(url: str) -> str:
    """The host and port in a database address, without user and password."""
    address = parse_database_url(url)
    host = address.host or address.query.get("host") or "localhost"
    port = address.port or address.query.get("port") or 5432
    return f"{host}:{port}"


def reason_of(error: BaseException) -> str:
    """Why a connection failed, in the words of the operating system or the server."""
    first = _driver_error(error)
    if isinstance(first, TimeoutError):
        return "no response in time"
    if TLS_REJECTED in str(first):
        return "it does not support TLS, or is not a PostgreSQL server"
    if isinstance(first, ssl.SSLError):
        return _database_tls_reason(first)
    if isinstance(first, OSError) and first.errno is not None and first.errno > 0:
        return os.strerror(first.errno)
    return _driver_message(first)


def _database_tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message.rstrip('.')})"
    return (error.reason or str(error)).replace("_", " ").lower()


def _driver_message(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).rstrip(".")
