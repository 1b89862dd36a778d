"""The event stream: what it costs, what it sends after a change, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import delete, insert, text
from structlog.testing import capture_logs

from siteatlas.main import end_waiting
from siteatlas.storage.models import FeedHead
from siteatlas.storage.session import Database
from siteatlas.web.live import POLL_SECONDS, Broadcaster
from tests.fixtures.database import transaction
from tests.fixtures.transactions import counted_statements
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")

STREAMS = 100


class Tab:
    """An open page that listens."""

    def __init__(self) -> None:
        self.marks: list[str] = []

    async def listen(self, broadcaster: Broadcaster) -> None:
        """Note each mark until the stream ends."""
        async for mark in broadcaster.listen():
            self.marks.append(mark)


@asynccontextmanager
async def open_tabs(broadcaster: Broadcaster, count: int) -> AsyncIterator[list[Tab]]:
    """Tabs that listen while the block runs, and leave after it."""
    tabs = [Tab() for _ in range(count)]
    tasks = [asyncio.create_task(tab.listen(broadcaster)) for tab in tabs]
    try:
        yield tabs
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.slow
async def test_a_hundred_open_tabs_cost_one_statement_a_second(app: FastAPI, database: Database):
    broadcaster: Broadcaster = app.state.broadcaster
    async with open_tabs(broadcaster, STREAMS) as tabs:
        await wait_until(lambda: all(tab.marks and tab.marks[-1] for tab in tabs))
        with counted_statements(database) as sent:
            await asyncio.sleep(3 * POLL_SECONDS)
    assert 1 <= len([text for text in sent if "feed_head" in text]) <= 4
    assert len(sent) <= 8


@pytest.mark.slow
async def test_every_tab_is_notified_of_a_new_job(app: FastAPI, client: httpx.AsyncClient):
    async with open_tabs(app.state.broadcaster, 3) as tabs:
        await wait_until(lambda: all(tab.marks and tab.marks[-1] for tab in tabs))
        before = [tab.marks[-1] for tab in tabs]
        await client.post("/scan", data={"sites": "example.com"})
        await wait_until(lambda: all(tab.marks[-1] not in {"", before[0]} for tab in tabs))
        assert len({tab.marks[-1] for tab in tabs}) == 1


@pytest.mark.slow
async def test_nothing_is_polled_while_no_tab_is_open(app: FastAPI, database: Database):
    async with open_tabs(app.state.broadcaster, 2) as tabs:
        await wait_until(lambda: bool(tabs[0].marks))
    with counted_statements(database) as sent:
        await asyncio.sleep(1.5 * POLL_SECONDS)
    assert sent == []


async def test_an_error_that_nobody_expected_does_not_end_the_updates(
    app: FastAPI, client: httpx.AsyncClient
):
    async with transaction() as session:
        await session.execute(text("ALTER TABLE feed_head DROP CONSTRAINT ck_feed_head_one_row"))
        await session.execute(insert(FeedHead).values(id=2))
    with capture_logs() as lines:
        async with open_tabs(app.state.broadcaster, 1) as (tab,):
            await wait_until(lambda: "live_poll_failed" in [line["event"] for line in lines])
            async with transaction() as session:
                await session.execute(delete(FeedHead).where(FeedHead.id == 2))
            await client.post("/scan", data={"sites": "example.com"})
            await wait_until(lambda: bool(tab.marks[-1]))
    (line,) = [line for line in lines if line["event"] == "live_poll_failed"][:1]
    assert line["exc_info"] is True


async def test_all_streams_end_when_the_service_stops(app: FastAPI):
    tabs = [Tab(), Tab()]
    tasks = [asyncio.create_task(tab.listen(app.state.broadcaster)) for tab in tabs]
    await wait_until(lambda: all(tab.marks for tab in tabs))
    end_waiting(app)
    async with asyncio.timeout(1):
        await asyncio.gather(*tasks)
    late = Tab()
    await late.listen(app.state.broadcaster)
    assert late.marks == []


async def test_a_slow_tab_gets_the_last_mark(app: FastAPI, client: httpx.AsyncClient):
    broadcaster: Broadcaster = app.state.broadcaster
    stream = broadcaster.listen()
    first = await anext(stream)
    async with open_tabs(broadcaster, 1) as (quick,):
        await client.post("/scan", data={"sites": "example.com"})
        await wait_until(lambda: bool(quick.marks[-1:]) and quick.marks[-1] not in {"", first})
        assert await anext(stream) == quick.marks[-1]
        await stream.aclose()
