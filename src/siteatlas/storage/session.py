"""The engine and the sessions of one process.

Every transaction is short and limited on the server's side. Callers own the transaction:
`async with get_background_session() as session, session.begin(): …`. One database is bound to a
process at a time; `main` and the command line bind it, other programs with `open_storage`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import asyncpg
from asyncpg import InterfaceError, PostgresError
from sqlalchemy import Connection, Row, Select, event
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from siteatlas.aio.priority_semaphore import PrioritySemaphore
from siteatlas.errors import ConfigurationError, DatabaseUnavailable
from siteatlas.logs import get_logger
from siteatlas.storage.autocommit import AutocommitSession
from siteatlas.storage.database_url import parse_database_url, tls_address
from siteatlas.storage.driver_connection import DriverConnection
from siteatlas.storage.faults import translated_faults

__all__ = [
    "AsyncConnection",
    "AsyncSession",
    "Database",
    "bind_database",
    "bound_database",
    "create_database",
    "execute_autocommit",
    "get_autocommit_session",
    "get_background_session",
    "get_job_autocommit_session",
    "get_job_session",
    "get_session",
    "get_snapshot_session",
    "session_dependency",
]

log = get_logger("storage")

APPLICATION_NAME = "siteatlas"
POOL_RECYCLE_SECONDS = 300
# Connections that were idle this long are checked before use: something between here and the
# server may have dropped them. An idle worker uses its connection every five seconds.
CHECK_AFTER_SECONDS = 10
RETURNED_AT = "returned_at"
CONNECT_SECONDS = 10
COMMAND_SECONDS = 60
CLOSE_SECONDS = 3
POOL_WAIT_SECONDS = 10
KEPT_CONNECTIONS = 4

REQUEST_LIMITS = {
    "idle_in_transaction_session_timeout": "15s",
    "statement_timeout": "10s",
    "lock_timeout": "3s",
}
BACKGROUND_LIMITS = {
    "idle_in_transaction_session_timeout": "15s",
    "statement_timeout": "20s",
    "lock_timeout": "5s",
}


class LimitedSession(Session):
    """A session whose every transaction begins by setting its own limits.

    They hold for the transaction only, so that nothing leaks through a pooler. What the
    connection has anyway is not set again.
    """


@event.listens_for(LimitedSession, "after_begin")
def _set_limits(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    """Set the timeouts of a session on the server when a transaction begins.

    SQLAlchemy sends BEGIN only before the first statement, which is after this event.
    """
    limits: dict[str, str] = session.info["limits"]
    if limits and not transaction.nested:
        driver: Any = connection.connection.driver_connection
        driver.next_limits = _set_commands(tuple(limits.items()))


@cache
def _set_commands(limits: tuple[tuple[str, str], ...]) -> str:
    """The commands that set these limits until the transaction ends."""
    return "".join(f" SET LOCAL {name} = '{value}';" for name, value in limits)


def _factory(engine: AsyncEngine) -> async_sessionmaker[AsyncSession]:
    """The session factory of an engine; its sessions set their limits in each transaction."""
    return async_sessionmaker(engine, sync_session_class=LimitedSession, expire_on_commit=False)


class Database:
    """An engine with its session factory. `standing` limits hold on each of its connections."""

    def __init__(
        self,
        engine: AsyncEngine,
        standing: Mapping[str, str] | None = None,
        *,
        connections: int = 1,
    ) -> None:
        self.engine = engine
        self.job_turns = PrioritySemaphore(_pool_share_of_jobs(connections))
        self._standing = standing or {}
        self._sessions = _factory(engine)
        self._autocommit_engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._autocommit_sessions = _factory(self._autocommit_engine)

    @asynccontextmanager
    async def session(self, limits: Mapping[str, str]) -> AsyncIterator[AsyncSession]:
        """A session whose transactions run with `limits`; connection errors are translated."""
        with translated_faults():
            async with self._sessions(info={"limits": self._missing(limits)}) as session:
                yield session

    @asynccontextmanager
    async def autocommit_session(
        self, limits: Mapping[str, str]
    ) -> AsyncIterator[AutocommitSession]:
        """A session in which each statement commits by itself, within the same limits.

        Limits that the connection does not have need a transaction around the statement.
        """
        missing = self._missing(limits)
        factory = self._sessions if missing else self._autocommit_sessions
        with translated_faults():
            async with factory(info={"limits": missing}) as session:
                yield AutocommitSession(session)

    async def execute_autocommit(
        self, statement: Select[Any], values: Mapping[str, Any], limits: Mapping[str, str]
    ) -> Row[Any]:
        """Execute one statement that commits by itself, within these limits; return its row.

        Only if limits are missing is there a session, which takes more CPU time.
        """
        if self._missing(limits):
            async with self.autocommit_session(limits) as session:
                return (await session.execute(statement, values)).one()
        with translated_faults():
            async with self._autocommit_engine.connect() as connection:
                row: Row[Any] = (await connection.execute(statement, values)).one()
                return row

    def _missing(self, limits: Mapping[str, str]) -> dict[str, str]:
        """The limits that are not already set on every connection."""
        return {name: value for name, value in limits.items() if self._standing.get(name) != value}

    async def close(self) -> None:
        """Close every pooled connection; those that do not answer are dropped."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.engine.dispose()
        except TimeoutError:
            log.warning("database_unresponsive_at_shutdown")
            await self.engine.dispose(close=False)


def create_database(
    url: str,
    *,
    pool_size: int = 10,
    pool_overflow: int = 0,
    behind_pooler: bool = True,
    usual_limits: Mapping[str, str] = REQUEST_LIMITS,
) -> Database:
    """An engine that works behind a transaction pooler.

    `behind_pooler=False` keeps prepared statements: only for a server that is reached directly.
    Its connections then have the `usual_limits`, so that transactions do not set them again.
    `no_prepare` is required by the standard that this engine follows; neither driver reads it.
    """
    standing = {} if behind_pooler else usual_limits
    connect_args: dict[str, Any] = {
        "timeout": CONNECT_SECONDS,
        "command_timeout": COMMAND_SECONDS,
        "server_settings": {"application_name": APPLICATION_NAME, **standing},
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
            pool_recycle=POOL_RECYCLE_SECONDS,
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
    return Database(engine, standing, connections=pool_size + pool_overflow)


def _drop_unused_limits(connection: Any, _record: ConnectionPoolEntry) -> None:
    """Forget the limits of a transaction without statements: they are not for the next one."""
    if connection is not None:
        connection.driver_connection.next_limits = ""


def _remember_return(_connection: Any, record: ConnectionPoolEntry) -> None:
    """Note when a connection came back to the pool."""
    record.info[RETURNED_AT] = time.monotonic()


def _require_working_connection(
    connection: Any, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection
) -> None:
    """Make the pool replace a connection that is closed, or that was unused and does not answer.

    A server or a pooler that shuts down closes its connections, which shows without a query. The
    check of the pool itself (`pool_pre_ping`) takes three statements before each transaction.
    """
    returned_at = record.info.get(RETURNED_AT)
    if returned_at is None:
        return
    is_unused = time.monotonic() - returned_at > CHECK_AFTER_SECONDS
    if connection.driver_connection.is_closed() or (is_unused and not _answers(connection)):
        raise InvalidatePoolError


def _answers(connection: Any) -> bool:
    """Whether a connection answers a query: a simple one, which needs no transaction."""
    try:
        connection.run_async(_run_check)
    except (PostgresError, InterfaceError, OSError):
        return False
    return True


async def _run_check(connection: asyncpg.Connection) -> None:
    """Run the usual statement that checks a connection; asyncpg cannot run an empty one."""
    await connection.execute("SELECT 1")


def _pool_share_of_jobs(connections: int) -> int:
    """How many connections of the database pool are for sessions of jobs at the same time.

    The rest is for heartbeats, claims and requests. One or two connections are shared by all.
    """
    return max(1, connections - min(KEPT_CONNECTIONS, connections // 2))


_bound: list[Database] = []


def bind_database(database: Database | None) -> None:
    """Make `database` the one that sessions of this process come from; None unbinds."""
    _bound[:] = [] if database is None else [database]


def bound_database() -> Database:
    """The database of this process."""
    if not _bound:
        raise DatabaseUnavailable(
            "No database is open in this process. Open one first: "
            "async with siteatlas.storage.startup.open_storage(settings)"
        )
    return _bound[-1]


@asynccontextmanager
async def get_session() -> AsyncIterator[AsyncSession]:
    """A session for one request, as a context manager."""
    async with bound_database().session(REQUEST_LIMITS) as session:
        yield session


async def session_dependency() -> AsyncIterator[AsyncSession]:
    """A session for a route that declares it with `Depends`; the route begins the transaction."""
    async with get_session() as session:
        yield session


@asynccontextmanager
async def get_autocommit_session() -> AsyncIterator[AutocommitSession]:
    """A session for a request that only reads, where each statement commits by itself.

    It saves the round trips that begin and end a transaction, which are slow on a busy machine.
    Behind a pooler each statement has a transaction around it, which sets the limits.
    """
    async with bound_database().autocommit_session(REQUEST_LIMITS) as session:
        yield session


async def execute_autocommit(statement: Select[Any], values: Mapping[str, Any]) -> Row[Any]:
    """Execute one write that is a transaction by itself, and return its row.

    There is no session to add a second write to. Several writes need a transaction.
    """
    return await bound_database().execute_autocommit(statement, values, REQUEST_LIMITS)


@asynccontextmanager
async def get_background_session(
    *, durable: bool = True, statement_seconds: int | None = None
) -> AsyncIterator[AsyncSession]:
    """A session for background work.

    `durable=False` lets a commit return before it is on disk: only for what may be missing after
    a crash of the server, which a reconnecting pool hides from us. `statement_seconds`
    replaces the limit of 20 s for one statement.
    """
    limits = dict(BACKGROUND_LIMITS)
    if not durable:
        limits["synchronous_commit"] = "off"
    if statement_seconds is not None:
        limits["statement_timeout"] = f"{statement_seconds}s"
    async with bound_database().session(limits) as session:
        yield session


@asynccontextmanager
async def get_job_session(*, statement_seconds: int | None = None) -> AsyncIterator[AsyncSession]:
    """A session for the rows of a running job, as soon as few enough jobs have one.

    Jobs wait here and not in the pool, where they would keep the heartbeat waiting until their
    own leases run out; interactive jobs come first. It must not be opened inside another one.
    """
    async with (
        bound_database().job_turns,
        get_background_session(statement_seconds=statement_seconds) as session,
    ):
        yield session


@asynccontextmanager
async def get_job_autocommit_session() -> AsyncIterator[AutocommitSession]:
    """An autocommit session for a step of a running job that is one statement."""
    database = bound_database()
    async with database.job_turns, database.autocommit_session(BACKGROUND_LIMITS) as session:
        yield session


@asynccontextmanager
async def get_snapshot_session() -> AsyncIterator[AsyncSession]:
    """A session in a transaction whose statements all see the same state of the database."""
    async with get_session() as session, session.begin():
        await session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        yield session
