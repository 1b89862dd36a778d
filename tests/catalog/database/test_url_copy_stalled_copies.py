"""Which statements are ended for the sake of others, and which are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from siteatlas.catalog import url_copy as stalled_copies
from siteatlas.catalog.url_copy import COPY_SECONDS
from siteatlas.processor.steps import terminate_stalled_writers
from siteatlas.storage.engine import APPLICATION_NAME, BACKUP_NAME, parse_database_url
from tests.fixtures.database import PostgresServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")

WAITS = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND state = 'active' AND wait_event = 'ClientRead' AND query LIKE 'COPY%'
"""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A COPY is stalled as soon as it waits for its client."""
    monkeypatch.setattr(stalled_copies, "STALLED_SECONDS", 0)
    monkeypatch.setattr(stalled_copies, "_end_stalled", stalled_copies._end_stalled_statement())


async def connect(server: PostgresServer, name: str, **settings: str) -> Any:
    """A connection past any pooler."""
    url = parse_database_url(server.admin_url)
    return await asyncpg.connect(
        host=url.query.get("host"),
        port=int(str(url.query.get("port"))),
        user="siteatlas",
        database=name,
        server_settings=settings,
    )


@asynccontextmanager
async def copying(
    server: PostgresServer, name: str, table: str, program: str = ""
) -> AsyncIterator[Any]:
    """A client that begins a COPY and sends nothing."""
    client = await connect(server, name, application_name=program)
    inspector = await connect(server, name)
    never = asyncio.Event()

    async def nothing() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    copy = asyncio.create_task(client.copy_to_table(table, source=nothing(), format="binary"))
    try:

        async def waits() -> bool:
            return bool(await inspector.fetchval(WAITS))

        await wait_until(waits)
        yield client
    finally:
        copy.cancel()
        await asyncio.gather(copy, return_exceptions=True)
        client.terminate()
        await inspector.close()


@pytest.mark.usefixtures("at_once")
async def test_a_copy_whose_client_is_silent_is_ended(
    postgres_server: PostgresServer, database_name: str
) -> None:
    async with copying(postgres_server, database_name, "sitemap_urls") as client:
        assert await terminate_stalled_writers() == 1
        await wait_until(client.is_closed)
        assert await terminate_stalled_writers() == 0


async def test_a_copy_that_a_living_worker_may_still_feed_is_left_alone(
    postgres_server: PostgresServer, database_name: str
) -> None:
    assert stalled_copies.STALLED_SECONDS > COPY_SECONDS
    async with copying(postgres_server, database_name, "sitemap_urls"):
        assert await terminate_stalled_writers() == 0


@pytest.mark.usefixtures("at_once")
async def test_a_copy_of_something_else_is_left_alone(
    postgres_server: PostgresServer, database_name: str
) -> None:
    async with copying(postgres_server, database_name, "candidates"):
        assert await terminate_stalled_writers() == 0


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("program", ["pg_restore", BACKUP_NAME])
async def test_an_operator_who_restores_the_table_is_left_alone(
    postgres_server: PostgresServer, database_name: str, program: str
) -> None:
    async with copying(postgres_server, database_name, "sitemap_urls", program):
        assert await terminate_stalled_writers() == 0


@pytest.mark.usefixtures("at_once")
async def test_a_client_that_freezes_before_it_sends_parameters_is_ended(
    postgres_server: PostgresServer, database_name: str
) -> None:
    limits = {"idle_in_transaction_session_timeout": "1s", "statement_timeout": "1s"}
    client = await connect(
        postgres_server, database_name, application_name=APPLICATION_NAME, **limits
    )
    try:
        await client.execute("BEGIN")
        await client.execute("LOCK TABLE workers IN SHARE MODE")
        await client.prepare("SELECT 1")
        await asyncio.sleep(1.5)
        assert not client.is_closed(), "a limit of the server ended it: this is not needed then"
        assert await terminate_stalled_writers() == 1
        await wait_until(client.is_closed)
    finally:
        client.terminate()
