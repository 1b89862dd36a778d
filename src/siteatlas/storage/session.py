"""The engine and the sessions of one process.

Every transaction is short and limited on the server's side. Callers own the transaction:
`async with get_background_session() as session, session.begin(): …`. One database is bound to a
process at a time; `main` and the command line bind it, other programs with `open_storage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, event, func, select
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, SessionTransaction

from siteatlas.aio.priority_semaphore import PrioritySemaphore
from siteatlas.errors import ConfigurationError, DatabaseUnavailable
from siteatlas.logs import get_logger
from siteatlas.storage.database_url import parse_database_url, tls_address
from siteatlas.storage.faults import translated_faults

__all__ = [
    "AsyncSession",
    "Database",
    "bind_database",
    "bound_database",
    "create_database",
    "get_background_session",
    "get_job_session",
    "get_session",
    "get_statement_session",
    "session_dependency",
]

log = get_logger("storage")

APPLICATION_NAME = "siteatlas"
POOL_RECYCLE_SECONDS = 300
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
    connection has anyway is not set again: it would be a question and an answer more.
    """


@event.listens_for(LimitedSession, "after_begin")
def _set_limits(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    limits: dict[str, str] = session.info["limits"]
    if limits and not transaction.nested:
        connection.execute(_setting(tuple(limits.items())))


@cache
def _setting(limits: tuple[tuple[str, str], ...]) -> Select[Any]:
    return select(*(func.set_config(name, value, True) for name, value in limits))


def _factory(engine: AsyncEngine) -> async_sessionmaker[AsyncSession]:
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
        self.job_turns = PrioritySemaphore(connections_for_jobs(connections))
        self._progress_snapshot = standing or {}
        self._sessions = _factory(engine)
        self._statement_sessions = _factory(engine.execution_options(isolation_level="AUTOCOMMIT"))

    @asynccontextmanager
    async def session(
        self, limits: dict[str, str], *, by_statement: bool = False
    ) -> AsyncIterator[AsyncSession]:
        """A session whose transactions carry `limits`; faults of the connection are translated.

        `by_statement` makes each statement its own transaction, where the limits stand anyway.
        """
        own = {
            name: value
            for name, value in limits.items()
            if self._progress_snapshot.get(name) != value
        }
        factory = self._statement_sessions if by_statement and not own else self._sessions
        with translated_faults():
            async with factory(info={"limits": own}) as session:
                yield session

    async def close(self) -> None:
        """Close every pooled connection; those that do not answer are dropped."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.engine.dispose()
        except TimeoutError:
            log.warning("database_unresponsive_at_shutdown")
            await self.engine.dispose(close=False)


def create_database(
    url: str, *, pool_size: int = 5, pool_overflow: int = 5, behind_pooler: bool = True
) -> Database:
    """An engine that works behind a transaction pooler.

    `behind_pooler=False` keeps prepared statements: only for a server that is reached directly.
    `no_prepare` is asked for by the standard this engine follows; neither driver reads it.
    """
    standing = {} if behind_pooler else REQUEST_LIMITS
    connect_args: dict[str, Any] = {
        "timeout": CONNECT_SECONDS,
        "command_timeout": COMMAND_SECONDS,
        "server_settings": {"application_name": APPLICATION_NAME, **standing},
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
            pool_pre_ping=behind_pooler,
            pool_recycle=POOL_RECYCLE_SECONDS,
            pool_use_lifo=True,
            execution_options={"no_prepare": True},
            hide_parameters=True,
            connect_args=connect_args,
        )
    except ArgumentError as error:
        raise ConfigurationError(f"DATABASE_URL is invalid: {error}.") from error
    return Database(engine, standing, connections=pool_size + pool_overflow)


def connections_for_jobs(connections: int) -> int:
    """How many of a pool the jobs may use at once: the rest is for heartbeat, claim and requests.

    A pool of one or two connections is shared by all.
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
    """The same for a route that declares it with `Depends`; it owns the transaction too."""
    async with get_session() as session:
        yield session


@asynccontextmanager
async def get_statement_session() -> AsyncIterator[AsyncSession]:
    """A session for a request in which each statement is whole in itself and may commit at once.

    It spares the questions that begin and end a transaction, each of which waits for its turn
    on a busy machine. Behind a pooler it is a session like any other.
    """
    async with bound_database().session(REQUEST_LIMITS, by_statement=True) as session:
        yield session


@asynccontextmanager
async def get_background_session(
    *, durable: bool = True, statement_seconds: int | None = None
) -> AsyncIterator[AsyncSession]:
    """A session for background work.

    `durable=False` lets a commit return before it is on disk: only for what may be missing after
    a crash of the server, which a pool that connects anew hides from us. `statement_seconds`
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
