"""Candidates that wait to be read, first in, first out, in little memory.

Thousands of children of indexes may wait in each of many scans, for hours. They are kept as
compressed blocks of URLs; the first and the last block are not compressed.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from siteatlas.net.address import parse_url
from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.events import DiscoveryMethod

BLOCK_CHILDREN = 250
# URLs of one index have most of their text in common, so the fastest level suffices.
COMPRESSION_LEVEL = 1

# The URL, and the date that an index lists for it.
_Child = tuple[str, datetime | None]
_SharedFields = tuple[str | None, str | None, int, bool]


@dataclass(slots=True)
class _ChildBlock:
    """Consecutive children of one index that wait for the crawl; `compressed` once it is full."""

    shared: _SharedFields
    children: list[_Child] = field(default_factory=list)
    compressed: bytes | None = None

    @property
    def is_full(self) -> bool:
        """Whether this block of waiting candidates is complete and can be compressed."""
        return self.compressed is not None or len(self.children) >= BLOCK_CHILDREN

    def compress(self) -> None:
        """Compress the children of an index that wait to be crawled."""
        rows = [(url, lastmod and lastmod.isoformat()) for url, lastmod in self.children]
        self.compressed = zlib.compress(json.dumps(rows).encode(), COMPRESSION_LEVEL)
        self.children = []

    def decompressed(self) -> list[_Child]:
        """The children of an index that wait to be crawled."""
        if self.compressed is None:
            return self.children
        rows = json.loads(zlib.decompress(self.compressed))
        return [(url, lastmod and datetime.fromisoformat(lastmod)) for url, lastmod in rows]

    def candidates(self) -> Iterator[CrawlCandidate]:
        """The waiting children as candidates of the crawl."""
        parent_url, parent_host, depth, below_robots = self.shared
        for url, lastmod in self.decompressed():
            yield CrawlCandidate(
                parse_url(url),
                DiscoveryMethod.SITEMAP_INDEX,
                depth=depth,
                parent_url=parent_url,
                parent_host=parent_host,
                listed_lastmod=lastmod,
                below_robots=below_robots,
            )


class _CandidateDeque:
    """The waiting candidates, with the methods of a deque that `asyncio.Queue` calls."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: deque[CrawlCandidate | _ChildBlock] = deque()
        self._first: Iterator[CrawlCandidate] = iter(())

    def __len__(self) -> int:
        return self._count

    def append(self, candidate: CrawlCandidate) -> None:
        """Add a candidate of the crawl; a child of an index goes into a block."""
        self._count += 1
        if not candidate.is_child:
            self._waiting.append(candidate)
            return
        block = self._open_block(_shared_fields(candidate))
        block.children.append((candidate.address.url, candidate.listed_lastmod))
        if block.is_full:
            block.compress()

    def popleft(self) -> CrawlCandidate:
        """Remove and return the candidate that has waited longest."""
        found = next(self._first, None)
        while found is None:
            first = self._waiting.popleft()
            self._first = (
                iter((first,)) if isinstance(first, CrawlCandidate) else first.candidates()
            )
            found = next(self._first, None)
        self._count -= 1
        return found

    def _open_block(self, shared: _SharedFields) -> _ChildBlock:
        """The last block of waiting candidates if it has room for such a child; else a new one."""
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, _ChildBlock) and last.shared == shared and not last.is_full:
            return last
        block = _ChildBlock(shared)
        self._waiting.append(block)
        return block


class CandidateQueue(asyncio.Queue[CrawlCandidate]):
    """The queue of a crawl; of children of an index it stores only what differs."""

    _queue: _CandidateDeque

    def _init(self, _maxsize: int) -> None:
        """Create the storage of the queue; overrides `asyncio.Queue`."""
        self._queue = _CandidateDeque()

    def _put(self, item: CrawlCandidate) -> None:
        """Store a candidate of the crawl; overrides `asyncio.Queue`."""
        self._queue.append(item)

    def _get(self) -> CrawlCandidate:
        """Take the next candidate of the crawl; overrides `asyncio.Queue`."""
        return self._queue.popleft()


def _shared_fields(candidate: CrawlCandidate) -> _SharedFields:
    """What all candidates of one block have in common."""
    return (
        candidate.parent_url,
        candidate.parent_host,
        candidate.depth,
        candidate.below_robots,
    )
