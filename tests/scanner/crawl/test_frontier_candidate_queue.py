"""Candidates that wait: all of them, in order, in little memory."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest

from siteatlas.net.address import parse_url
from siteatlas.scanner.crawl.document import CrawlCandidate
from siteatlas.scanner.crawl.frontier import BLOCK_CHILDREN, CandidateQueue, Frontier
from siteatlas.scanner.events import DiscoveryMethod

DAY = datetime(2026, 11, 1, tzinfo=UTC)
MANY = 10_000
MAX_BYTES_EACH = 40
MAX_BLOCK_BYTES = 100_000


def child(number: int) -> CrawlCandidate:
    return CrawlCandidate(
        parse_url(f"https://a.example/sitemaps/products-{number}.xml"),
        DiscoveryMethod.SITEMAP_INDEX,
        depth=1,
        parent_url="https://a.example/index.xml",
        parent_host="a.example",
        listed_lastmod=DAY + timedelta(seconds=number) if number % 3 else None,
    )


def test_children_of_many_blocks_come_out_as_they_went_in():
    queue = CandidateQueue()
    expected = [child(number) for number in range(3 * BLOCK_CHILDREN + 7)]
    for one in expected:
        queue.append(one)
    assert len(queue) == len(expected)
    assert [queue.popleft() for _ in expected] == expected
    assert not queue


def test_children_may_come_while_others_are_taken():
    queue = CandidateQueue()
    expected = [child(number) for number in range(2 * BLOCK_CHILDREN)]
    given = []
    for one in expected:
        queue.append(one)
        if len(queue) > BLOCK_CHILDREN // 2:
            given.append(queue.popleft())
    given += [queue.popleft() for _ in range(len(queue))]
    assert given == expected


@pytest.mark.full
def test_ten_thousand_waiting_children_take_little_memory():
    frontier = Frontier("a.example", max_documents=MANY, max_depth=5)
    frontier.add(child(0))
    tracemalloc.start()
    try:
        for number in range(1, MANY):
            assert frontier.add(child(number)) is None
        # With a large heap, the collector may not have run since the addresses were parsed.
        gc.collect()
        taken = [trace.size for trace in tracemalloc.take_snapshot().traces]
    finally:
        tracemalloc.stop()
    # The interpreter's table of interned strings may grow just now, in one block.
    assert sum(size for size in taken if size < MAX_BLOCK_BYTES) / MANY < MAX_BYTES_EACH
