"""Nothing appears at or below a position that a reader was shown, however scans are published."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from tests.catalog.database.publishers import (
    Reader,
    events_first_reader,
    follow,
    number_with_a_sequence,
    page_reader,
    pauses_before_commit,
    publish_at_once,
)
from tests.fixtures.feed import FeedClient

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow, pytest.mark.timeout(120)]


async def skipped_events(client: httpx.AsyncClient, make: Callable[[FeedClient], Reader]) -> int:
    """How many events a reader never saw while twenty scans at a time were published."""
    feed = FeedClient(client, limit=1000)
    with pauses_before_commit():
        publishing = asyncio.create_task(publish_at_once())
        seen = await follow(make(feed), publishing)
        await publishing
    published = {event["id"] for event in await feed.events()}
    assert len(published) > 100
    assert seen <= published
    return len(published - seen)


@pytest.mark.full
async def test_a_reader_that_never_looks_back_misses_nothing(client: httpx.AsyncClient):
    assert await skipped_events(client, page_reader) == 0


@pytest.mark.full
async def test_numbers_from_a_sequence_are_detected(client: httpx.AsyncClient):
    await number_with_a_sequence()
    assert await skipped_events(client, page_reader) > 0


@pytest.mark.full
async def test_a_reader_that_reads_the_head_last_is_detected(client: httpx.AsyncClient):
    assert await skipped_events(client, events_first_reader) > 0
