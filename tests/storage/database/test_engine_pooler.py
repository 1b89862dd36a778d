"""The engine behind PgBouncer in transaction mode, with three server connections for everybody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain

import pytest
import pytest_asyncio
from sqlalchemy import func, literal_column, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from siteatlas.errors import DatabaseUnavailable
from siteatlas.queue.completion import complete
from siteatlas.queue.fence import WorkerReport, report_worker
from siteatlas.storage.engine import DriverConnection, parse_database_url
from siteatlas.storage.session import (
    BACKGROUND_LIMITS,
    Database,
    bind_database,
    create_database,
    get_background_session,
)
from tests.fixtures.connections import CountedConnections
from tests.fixtures.database import PostgresServer
from tests.fixtures.pooler import SERVER_CONNECTIONS, Pooler, running_pooler
from tests.fixtures.queue import job_of, submit, take

pytestmark = pytest.mark.pgbouncer

TASKS = 8
ROUNDS = 6
# Of ten connections, two are for claims and leases.
POOL_CEILING = 8
LIMITS = select(*map(func.current_setting, (*BACKGROUND_LIMITS, "synchronous_commit")))
NO_LIMITS = ("0", "0", "0", "on")
PREPARED_STATEMENT_FAULTS = {"26000", "42P05"}


@pytest.fixture
def pooler(postgres_server: PostgresServer, pgbouncer_program: str) -> Iterator[Pooler]:
    with running_pooler(pgbouncer_program, postgres_server.admin_url) as running:
        yield running


@asynccontextmanager
async def bound(database: Database) -> AsyncIterator[Database]:
    bind_database(database)
    try:
        yield database
    finally:
        bind_database(None)
        await database.close()


@pytest_asyncio.fixture
async def pooled(pooler: Pooler, database_name: str) -> AsyncIterator[Database]:
    """The product's engine through the pooler, bound to this process."""
    async with bound(create_database(pooler.url_of(database_name))) as database:
        yield database


@asynccontextmanager
async def every_server_connection(
    pooler: Pooler, database_name: str
) -> AsyncIterator[list[AsyncConnection]]:
    """New clients, one on each server connection: all are in a transaction at the same time."""
    engine = create_async_engine(
        pooler.url_of(database_name),
        poolclass=NullPool,
        connect_args={"statement_cache_size": 0, "prepared_statement_cache_size": 0},
    )
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(engine.begin()) for _ in range(SERVER_CONNECTIONS)
        ]
        pids = [await client.scalar(select(func.pg_backend_pid())) for client in clients]
        assert len(set(pids)) == SERVER_CONNECTIONS
        yield clients


async def named_statements(pooler: Pooler, database_name: str) -> list[int]:
    """How many named prepared statements each server connection holds."""
    count = text("SELECT count(*) FROM pg_prepared_statements")
    async with every_server_connection(pooler, database_name) as clients:
        return [await client.scalar(count) or 0 for client in clients]


def report_of(worker: int) -> WorkerReport:
    return WorkerReport(f"worker-{worker}", "host", 1, "1.0", slots=4, running=1)


async def one_round(task: int, number: int) -> None:
    """Insert, claim and upsert through the verbs of the queue, one transaction each."""
    submitted = await submit(f"site-{task}-{number}.example.com")
    claims = await take(1, f"worker-{task}")
    async with get_background_session() as session, session.begin():
        await report_worker(session, report_of(task))
        for claim in claims:
            await complete(session, claim, {"domain": claim.domain})
    await job_of(submitted.id)


async def all_rounds() -> list[DBAPIError]:
    """Let all tasks do their rounds at once; gives the faults that they met."""

    async def rounds_of(task: int) -> list[DBAPIError]:
        faults: list[DBAPIError] = []
        for number in range(ROUNDS):
            try:
                await one_round(task, number)
            except DBAPIError as fault:
                faults.append(fault)
        return faults

    return list(chain(*await asyncio.gather(*map(rounds_of, range(TASKS)))))


def clients_left(pooler: Pooler, database_name: str) -> int:
    """The client connections when the pooler has had time to notice who left."""
    deadline = time.monotonic() + 5
    while (left := pooler.clients(database_name)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


@pytest.mark.criterion("statement-cache-off")
@pytest.mark.usefixtures("pooled")
async def test_parallel_work_meets_no_prepared_statement_fault() -> None:
    assert await all_rounds() == []


@pytest.mark.criterion("statement-cache-off")
@pytest.mark.usefixtures("pooled")
async def test_parallel_work_leaves_no_named_statement_on_any_server_connection(
    pooler: Pooler, database_name: str
) -> None:
    await all_rounds()
    assert pooler.servers(database_name) == SERVER_CONNECTIONS
    assert await named_statements(pooler, database_name) == [0] * SERVER_CONNECTIONS


@pytest.mark.criterion("statement-cache-off")
async def test_with_statement_caches_the_same_work_fails(
    pooler: Pooler, database_name: str
) -> None:
    careless = create_async_engine(
        parse_database_url(pooler.url_of(database_name)),
        connect_args={"connection_class": DriverConnection},
    )
    async with bound(Database(careless)):
        faults = await all_rounds()
    states = {getattr(fault.orig, "sqlstate", None) for fault in faults}
    assert states & PREPARED_STATEMENT_FAULTS
    assert sum(await named_statements(pooler, database_name)) > 0


@pytest.mark.criterion("supavisor")
async def test_reads_without_a_transaction_work(pooled: Database) -> None:
    engine = pooled.engine.execution_options(isolation_level="AUTOCOMMIT")

    async def read(number: int) -> int | None:
        async with engine.connect() as connection:
            return await connection.scalar(select(literal_column(str(number))))

    assert await asyncio.gather(*map(read, range(40))) == list(range(40))


async def limits_seen(pooler: Pooler, database_name: str) -> list[tuple[str, ...]]:
    """The limits that a new client finds on each server connection."""
    async with every_server_connection(pooler, database_name) as clients:
        return [tuple((await client.execute(LIMITS)).one()) for client in clients]


@pytest.mark.criterion("supavisor")
@pytest.mark.usefixtures("pooled")
async def test_limits_of_a_transaction_do_not_reach_the_next_client(
    pooler: Pooler, database_name: str
) -> None:
    async def work() -> tuple[str, ...]:
        async with get_background_session(durable=False) as session, session.begin():
            return tuple((await session.execute(LIMITS)).one())

    inside = await asyncio.gather(*(work() for _ in range(40)))
    assert set(inside) == {(*BACKGROUND_LIMITS.values(), "off")}
    assert await limits_seen(pooler, database_name) == [NO_LIMITS] * SERVER_CONNECTIONS


@pytest.mark.usefixtures("pooled")
async def test_limits_of_a_connection_would_reach_the_next_client(
    pooler: Pooler, database_name: str
) -> None:
    async with get_background_session() as session, session.begin():
        await session.execute(select(func.set_config("statement_timeout", "7s", False)))
    assert "7s" in chain(*await limits_seen(pooler, database_name))


@pytest.mark.criterion("sessions-closed")
async def test_a_closed_database_leaves_no_client_connection(
    pooler: Pooler, pooled: Database, database_name: str
) -> None:
    await all_rounds()
    assert pooler.clients(database_name) > 0
    await pooled.close()
    assert clients_left(pooler, database_name) == 0


@pytest.mark.criterion("few-connections")
async def test_a_hundred_sessions_share_the_connections_of_the_pool(
    pooler: Pooler, pooled: Database, database_name: str
) -> None:
    counted = CountedConnections(pooled)

    async def work(number: int) -> None:
        async with get_background_session() as session, session.begin():
            await session.execute(select(func.pg_sleep(0.02)))
            await report_worker(session, report_of(number))

    burst = asyncio.gather(*map(work, range(100)))
    clients, servers = [], []
    while not burst.done():
        clients.append(await asyncio.to_thread(pooler.clients, database_name))
        servers.append(await asyncio.to_thread(pooler.servers, database_name))
    await burst
    assert counted.peak == POOL_CEILING
    assert max(clients) <= POOL_CEILING
    assert max(servers) <= SERVER_CONNECTIONS


@pytest.mark.criterion("no-session-errors")
@pytest.mark.usefixtures("pooled")
async def test_the_next_session_works_when_a_server_connection_was_lost() -> None:
    with pytest.raises(DatabaseUnavailable):
        async with get_background_session() as session, session.begin():
            await session.execute(select(func.pg_terminate_backend(func.pg_backend_pid())))
    async with get_background_session() as session, session.begin():
        assert await session.scalar(select(literal_column("1"))) == 1
