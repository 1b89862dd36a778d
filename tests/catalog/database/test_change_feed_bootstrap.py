"""A client that reads all URLs, or an export, while scans are published, and then the feed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import httpx
import pytest

from tests.catalog.database.runs import scan
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.feed import FeedClient, Listing, Mirror

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow, pytest.mark.timeout(120)]

SCANS = 12
CHANGES = 15
DOCUMENTS = ("/a.xml", "/b.xml", "/c.xml")


def change(site: ChangingSite, chance: random.Random) -> None:
    """Pages come, go, move and get other dates; never so many that a removal is held."""
    for _ in range(CHANGES):
        page, path = f"/page{chance.randrange(60)}", chance.choice(DOCUMENTS)
        if chance.random() < 0.4:
            site[path].entries.pop(page, None)
        else:
            site[path].put(page, date=f"2026-11-{chance.randrange(1, 15):02d}")


async def scan_while_it_changes(site: ChangingSite, chance: random.Random) -> None:
    for _ in range(SCANS):
        change(site, chance)
        assert (await scan(site)).status == "completed"


@pytest.mark.full
@pytest.mark.parametrize("start", [FeedClient.listing, FeedClient.exported])
async def test_what_a_client_starts_with_and_the_feed_give_the_stored_state(
    start: Callable[[FeedClient], Awaitable[tuple[int, Listing]]], client: httpx.AsyncClient
):
    chance = random.Random(1504)
    async with ChangingSite() as site:
        site.add("/index.xml", children=list(DOCUMENTS))
        for path in DOCUMENTS:
            site.add(path, [f"{path}/{number}" for number in range(40)])
        await scan(site)
        feed = FeedClient(client, site.host_port, limit=10)
        scanning = asyncio.create_task(scan_while_it_changes(site, chance))
        mirrors = []
        while not scanning.done():
            mirrors.append(Mirror(*await start(feed)))
        await scanning
    events = await feed.events()
    _, stored = await feed.listing()
    assert len({mirror.as_of for mirror in mirrors}) > 3
    for mirror in mirrors:
        assert await mirror.replay(events, feed.document) == stored, mirror.as_of
