"""The children of an index: followed some at a time, so that others get on meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from siteatlas.net.address import parse_site, parse_url
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.scanner.crawl.crawl import LINKS_PER_CHUNK, LINKS_PER_EVENT, Crawl
from siteatlas.scanner.crawl.document import CrawlCandidate
from siteatlas.scanner.events import ChildLink, ChildrenFound, DiscoveryMethod, ScanEvent
from siteatlas.scanner.options import NOTHING_KNOWN, ScanOptions

INDEX = "https://a.example/index.xml"
CHILDREN = 10_000


@pytest.mark.slow
async def test_ten_thousand_children_do_not_keep_the_event_loop():
    told: list[ScanEvent] = []
    rounds = 0

    async def emit(event: ScanEvent) -> None:
        told.append(event)

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    crawl = Crawl(parse_site("https://a.example"), ScanOptions(), NOTHING_KNOWN, emit)
    client = HttpClient(EgressPolicy(), Politeness(), user_agent="tests")
    parent = CrawlCandidate(parse_url(INDEX), DiscoveryMethod.ROBOTS_TXT)
    links = [ChildLink(f"https://a.example/{number}.xml") for number in range(CHILDREN - 1)]
    counting = asyncio.create_task(count_rounds())
    await crawl._follow(parent, INDEX, links, client)
    counting.cancel()
    found = [event.children for event in told if isinstance(event, ChildrenFound)]
    assert [child for children in found for child in children] == links
    assert max(map(len, found)) == LINKS_PER_EVENT
    # A fast machine does a few pieces in one round.
    assert rounds >= CHILDREN / LINKS_PER_CHUNK / 10
