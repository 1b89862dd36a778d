"""The connection pool of a database: how connections are shared, kept, checked and replaced."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import pytest
from sqlalchemy import Integer, func, literal_column, select
from sqlalchemy.pool import QueuePool

from siteatlas.errors import DatabaseUnavailable
from siteatlas.storage import engine as engine_module
from siteatlas.storage.engine import CHECK_AFTER_SECONDS
from siteatlas.storage.session import (
    REQUEST_LIMITS,
    Database,
    create_database,
    get_background_session,
)
from tests.fixtures.connections import CountedConnections, driver_connection
from tests.fixtures.database import PostgresServer

# Of ten connections, two are for claims and leases.
POOL_CEILING = 8
ONE = select(literal_column("1", Integer))


@pytest.mark.parametrize(
    ("check_after", "expected"), [(0, ["SELECT 1", "BEGIN;"]), (CHECK_AFTER_SECONDS, ["BEGIN;"])]
)
async def test_a_pooled_connection_is_checked_by_one_statement_if_it_was_not_used_for_long(
    database_url: str, check_after: float, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "CHECK_AFTER_SECONDS", check_after)
    database, sent = create_database(database_url, behind_pooler=True), list[str]()
    async with database.session({}) as session, session.begin():
        (await driver_connection(session)).add_query_logger(lambda query: sent.append(query.query))
    sent.clear()
    async with database.session({}) as session, session.begin():
        await session.execute(ONE)
    await database.close()
    assert sent[: len(expected)] == expected


@pytest.mark.parametrize("check_after", [0, CHECK_AFTER_SECONDS])
async def test_connections_that_the_server_closed_while_idle_are_replaced(
    postgres_server: PostgresServer,
    database_name: str,
    check_after: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database_url = postgres_server.direct_url_of(database_name)
    monkeypatch.setattr(engine_module, "CHECK_AFTER_SECONDS", check_after)
    database = create_database(database_url, behind_pooler=True)
    async with database.session({}) as first, database.session({}) as second:
        await first.execute(ONE)
        await second.execute(ONE)
        idle = [await driver_connection(session) for session in (first, second)]
    await close_from_the_server(database_url, idle)
    async with database.session({}) as first, database.session({}) as second:
        assert (await first.scalar(ONE), await second.scalar(ONE)) == (1, 1)
    await database.close()


async def close_from_the_server(url: str, idle: list[asyncpg.Connection]) -> None:
    """Let the server end these connections, and wait until this process has noticed."""
    admin = await asyncpg.connect(url.replace("postgresql+asyncpg://", "postgresql://", 1))
    for connection in idle:
        await admin.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
    await admin.close()
    for _ in range(500):
        if all(connection.is_closed() for connection in idle):
            return
        await asyncio.sleep(0.01)


@pytest.mark.criterion("few-connections")
async def test_waiting_too_long_for_a_connection_is_an_unavailable_database(
    postgres_server: PostgresServer, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "POOL_WAIT_SECONDS", 0.1)
    url = postgres_server.url_of(database_name)
    database = create_database(url, pool_size=1, pool_overflow=0)
    async with database.session(REQUEST_LIMITS) as holder:
        await holder.execute(ONE)
        with pytest.raises(DatabaseUnavailable):
            async with database.session(REQUEST_LIMITS) as waiting:
                await waiting.execute(ONE)
    await database.close()


@pytest.mark.criterion("efficient", "background-sessions", "few-connections")
async def test_fifty_background_sessions_share_the_connections_of_the_pool(
    database: Database,
) -> None:
    counted = CountedConnections(database)

    async def work() -> None:
        async with get_background_session() as session, session.begin():
            await session.execute(select(func.pg_sleep(0.02)))

    await asyncio.gather(*(work() for _ in range(50)))
    assert counted.peak == POOL_CEILING
    assert counted.checked_out == 0


@pytest.mark.criterion("efficient", "few-connections")
async def test_the_connections_of_one_burst_serve_the_next_one(
    postgres_server: PostgresServer, database_name: str
) -> None:
    database = create_database(postgres_server.url_of(database_name))
    counted = CountedConnections(database)

    async def work() -> None:
        async with database.session({}) as session:
            await session.execute(select(func.pg_sleep(0.02)))

    for _ in range(3):
        await asyncio.gather(*(work() for _ in range(POOL_CEILING)))
    assert counted.opened == POOL_CEILING
    await database.close()


@pytest.mark.criterion("few-connections")
async def test_claims_and_leases_do_not_wait_for_the_connections_of_jobs_and_requests(
    postgres_server: PostgresServer, database_name: str
) -> None:
    database = create_database(postgres_server.direct_url_of(database_name))
    async with AsyncExitStack() as stack:
        for _ in range(POOL_CEILING):
            session = await stack.enter_async_context(database.session({}))
            await session.execute(ONE)
        async with database.queue.session({}) as first, database.queue.session({}) as second:
            assert (await first.scalar(ONE), await second.scalar(ONE)) == (1, 1)
    await database.close()


@pytest.mark.parametrize(("size", "overflow"), [(1, 0), (1, 9), (2, 2), (5, 0), (5, 5), (10, 0)])
async def test_a_process_opens_no_more_connections_than_its_settings_say(
    postgres_server: PostgresServer, database_name: str, size: int, overflow: int
) -> None:
    url = postgres_server.url_of(database_name)
    database = create_database(url, pool_size=size, pool_overflow=overflow)
    pools = [engine.pool for engine in database.engines]
    limits = [pool.size() + pool._max_overflow for pool in pools if isinstance(pool, QueuePool)]
    assert sum(limits) == size + overflow
    await database.close()


@pytest.mark.criterion("sessions-closed")
async def test_a_database_that_is_closed_leaves_no_connection_open(
    postgres_server: PostgresServer, database_name: str
) -> None:
    database = create_database(postgres_server.url_of(database_name))
    async with database.session({}) as session, database.queue.session({}) as of_queue:
        connections = [await driver_connection(one) for one in (session, of_queue)]
    assert [connection.is_closed() for connection in connections] == [False, False]
    await database.close()
    assert [connection.is_closed() for connection in connections] == [True, True]


@pytest.mark.criterion("background-sessions", "sessions-closed")
async def test_sessions_that_fail_or_are_cancelled_give_their_connection_back(
    database: Database,
) -> None:
    counted = CountedConnections(database)

    async def work(number: int) -> None:
        async with get_background_session() as session, session.begin():
            if number % 2:
                await session.execute(select(literal_column("1 / 0")))
            await session.execute(select(func.pg_sleep(30)))

    tasks = [asyncio.create_task(work(number)) for number in range(8)]
    await asyncio.wait(tasks, timeout=0.5)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results[::2]} == {asyncio.CancelledError}
    assert counted.checked_out == 0
    async with get_background_session() as session:
        assert await session.scalar(ONE) == 1
