"""The database and the sessions of one process; `engine` creates the connection pools.

Every transaction is short and limited on the server's side. Callers own the transaction:
`async with get_background_session() as session, session.begin(): …`. One database is bound to a
process at a time; `main` and the command line bind it, other programs with `open_storage`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime
from functools import cache, partial, wraps
from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple, overload

from sqlalchemy import Connection, Result, Row, Select, event, func, select
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
)
from sqlalchemy.orm import Session, SessionTransaction

from siteatlas.aio import PrioritySemaphore
from siteatlas.errors import DatabaseBusy, DatabaseUnavailable
from siteatlas.logs import get_logger
from siteatlas.storage.engine import create_engine, translated_faults

__all__ = [
    "BACKGROUND_LIMITS",
    "REQUEST_LIMITS",
    "AsyncConnection",
    "AsyncSession",
    "AutocommitSession",
    "Database",
    "Reader",
    "bind_database",
    "bound_database",
    "create_database",
    "execute_autocommit",
    "get_autocommit_session",
    "get_background_session",
    "get_job_session",
    "get_session",
    "retry_when_busy",
]

log = get_logger("storage")

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
TRIES = 4
FIRST_PAUSE = 0.02

Columns = TypeVarTuple("Columns")
ValueT = TypeVar("ValueT")
Parameters = Mapping[str, Any]
ArgsP = ParamSpec("ArgsP")
ResultT = TypeVar("ResultT")
Transaction = Callable[ArgsP, Coroutine[Any, Any, ResultT]]


@asynccontextmanager
async def get_session(*, snapshot: bool = False) -> AsyncIterator[AsyncSession]:
    """A session for one request, as a context manager; whoever opens it begins the transaction.

    A `snapshot` is in a transaction whose statements all see the same state of the database.
    """
    async with bound_database().session(REQUEST_LIMITS) as session:
        if not snapshot:
            yield session
            return
        async with session.begin():
            await session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session


@asynccontextmanager
async def get_autocommit_session(*, for_job: bool = False) -> AsyncIterator[AutocommitSession]:
    """A session for a request that only reads, where each statement commits by itself.

    It saves the round trips that begin and end a transaction, which are slow on a busy machine.
    Behind a pooler each statement has a transaction around it, which sets the limits. `for_job`:
    for a step of a running job that is one statement; it waits its turn as in `get_job_session`.
    """
    database = bound_database()
    limits = BACKGROUND_LIMITS if for_job else REQUEST_LIMITS
    turn = database.job_turns if for_job else nullcontext()
    async with turn, database.autocommit_session(limits) as session:
        yield session


async def execute_autocommit(statement: Select[Any], values: Mapping[str, Any]) -> Row[Any]:
    """Execute one write that is a transaction by itself, and return its row.

    There is no session to add a second write to. Several writes need a transaction.
    """
    return await bound_database().execute_autocommit(statement, values, REQUEST_LIMITS)


@asynccontextmanager
async def get_background_session(
    *, durable: bool = True, statement_seconds: int | None = None, for_queue: bool = False
) -> AsyncIterator[AsyncSession]:
    """A session for background work.

    `durable=False` lets a commit return before it is on disk: only for what may be missing after
    a crash of the server, which a reconnecting pool hides from us. `statement_seconds`
    replaces the limit of 20 s for one statement. `for_queue`: for claims and leases, which have
    connections of their own.
    """
    limits = BACKGROUND_LIMITS | ({} if durable else {"synchronous_commit": "off"})
    if statement_seconds is not None:
        limits["statement_timeout"] = f"{statement_seconds}s"
    database = bound_database()
    async with (database.queue if for_queue else database).session(limits) as session:
        yield session


@asynccontextmanager
async def get_job_session(*, statement_seconds: int | None = None) -> AsyncIterator[AsyncSession]:
    """A session for the rows of a running job, as soon as few enough jobs have one.

    Jobs wait here and not in the pool, where they would keep requests waiting; interactive jobs
    come first. It must not be opened inside another one.
    """
    async with (
        bound_database().job_turns,
        get_background_session(statement_seconds=statement_seconds) as session,
    ):
        yield session


@asynccontextmanager
async def expensive_turn() -> AsyncIterator[None]:
    """The turn to run expensive statements, so that scans find connections; before a session."""
    async with bound_database().expensive_turns:
        yield


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


def create_database(
    url: str,
    *,
    pool_size: int = 10,
    pool_overflow: int = 0,
    behind_pooler: bool = True,
    usual_limits: Mapping[str, str] = REQUEST_LIMITS,
) -> Database:
    """A database with at most `pool_size` + `pool_overflow` connections.

    `behind_pooler=False` keeps prepared statements: only for a server that is reached directly.
    Its connections then have the `usual_limits`, so that transactions do not set them again.
    """
    connections = pool_size + pool_overflow
    # Of ten connections, two are for claims and leases, and at most six for the rows of jobs.
    for_queue = min(2, connections // 5)
    kept = max(1, pool_size - for_queue)
    open_pool = partial(_open_pool, url, behind_pooler=behind_pooler)
    queue = open_pool(for_queue, 0, BACKGROUND_LIMITS) if for_queue else None
    return open_pool(kept, connections - for_queue - kept, usual_limits, queue=queue)


def _open_pool(
    url: str,
    size: int,
    overflow: int,
    limits: Mapping[str, str],
    *,
    behind_pooler: bool,
    queue: Database | None = None,
) -> Database:
    standing = {} if behind_pooler else limits
    engine = create_engine(
        url,
        pool_size=size,
        pool_overflow=overflow,
        behind_pooler=behind_pooler,
        standing_limits=standing,
    )
    return Database(engine, standing, connections=size + overflow, queue=queue)


class Database:
    """An engine with its session factory. `standing` limits hold on each of its connections.

    `queue` has the connections for claims and leases, so that neither requests nor jobs, however
    many there are, make a heartbeat wait until leases expire.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        standing: Mapping[str, str] | None = None,
        *,
        connections: int = 1,
        queue: Database | None = None,
    ) -> None:
        self.engine = engine
        self.queue = queue or self
        self.job_turns = PrioritySemaphore(_pool_share_of_jobs(connections))
        self.expensive_turns = asyncio.Semaphore(max(1, connections // 4))
        self._standing = standing or {}
        self._sessions = _factory(engine)
        self._autocommit_engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._autocommit_sessions = _factory(self._autocommit_engine)

    @property
    def engines(self) -> tuple[AsyncEngine, ...]:
        """The engines of all connections of this process."""
        return (self.engine,) if self.queue is self else (self.engine, self.queue.engine)

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
        return {name: value for name, value in limits.items() if self._standing.get(name) != value}

    async def close(self) -> None:
        """Close every pooled connection; those that do not answer are dropped."""
        if self.queue is not self:
            await self.queue.close()
        try:
            async with asyncio.timeout(3):
                await self.engine.dispose()
        except TimeoutError:
            log.warning("database_unresponsive_at_shutdown")
            await self.engine.dispose(close=False)


def _pool_share_of_jobs(connections: int) -> int:
    """How many connections of the database pool are for sessions of jobs at the same time.

    The rest is for requests. One or two connections are shared by all.
    """
    return max(1, connections - min(2, connections // 2))


def _factory(engine: AsyncEngine) -> async_sessionmaker[AsyncSession]:
    return async_sessionmaker(engine, sync_session_class=LimitedSession, expire_on_commit=False)


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
    return "".join(f" SET LOCAL {name} = '{value}';" for name, value in limits)


class Reader(Protocol):
    """What runs a SELECT: a session in a transaction, or one without."""

    async def execute(
        self, statement: Select[*Columns], params: Parameters | None = None, /
    ) -> Result[*Columns]:
        """The rows of a statement."""

    async def scalar(
        self, statement: Select[ValueT], params: Parameters | None = None, /
    ) -> ValueT | None:
        """The first column of the first row."""


class AutocommitSession:
    """Runs each statement in its own transaction.

    It is not an `AsyncSession` and has no `begin`, `add` or `flush`, so that mypy refuses to pass
    it to a function that writes: several writes belong into a transaction.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def execute(
        self, statement: Select[*Columns], params: Parameters | None = None, /
    ) -> Result[*Columns]:
        """The rows of a statement."""
        async with self._session.begin():
            return await self._session.execute(statement, params)

    async def scalar(
        self, statement: Select[ValueT], params: Parameters | None = None, /
    ) -> ValueT | None:
        """The first column of the first row."""
        async with self._session.begin():
            return await self._session.scalar(statement, params)


@overload
def retry_when_busy(transaction: Transaction[ArgsP, ResultT], /) -> Transaction[ArgsP, ResultT]: ...


@overload
def retry_when_busy(
    *, before_retry: Callable[[], Awaitable[object]]
) -> Callable[[Transaction[ArgsP, ResultT]], Transaction[ArgsP, ResultT]]: ...


def retry_when_busy(
    transaction: Transaction[ArgsP, ResultT] | None = None,
    /,
    *,
    before_retry: Callable[[], Awaitable[object]] | None = None,
) -> (
    Transaction[ArgsP, ResultT]
    | Callable[[Transaction[ArgsP, ResultT]], Transaction[ArgsP, ResultT]]
):
    """Decorate a function that is one transaction: run it again from its start when it was busy.

    The function opens its own session, so that nothing of a lost attempt is left in it. Use it as
    `@retry_when_busy`, or as `@retry_when_busy(before_retry=...)` to clear the way first.
    """

    def decorate(function: Transaction[ArgsP, ResultT]) -> Transaction[ArgsP, ResultT]:
        @wraps(function)
        async def retried(*args: ArgsP.args, **kwargs: ArgsP.kwargs) -> ResultT:
            for attempt in range(1, TRIES):
                try:
                    return await function(*args, **kwargs)
                except DatabaseBusy:
                    if before_retry is not None:
                        await before_retry()
                    await asyncio.sleep(random.uniform(0.5, 1) * FIRST_PAUSE * 2**attempt)
            return await function(*args, **kwargs)

        return retried

    return decorate if transaction is None else decorate(transaction)


async def database_time(session: AsyncSession) -> datetime:
    """The time that all stored times are compared with."""
    return (await session.execute(select(func.now()))).scalar_one()
