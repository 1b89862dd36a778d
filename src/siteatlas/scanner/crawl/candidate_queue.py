"""Candidates that wait to be read, first in, first out, in little memory.

Thousands of children of indexes may wait in each of many scans, for hours. They are kept as
compressed pages of URLs; the first and the last page are not compressed.
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

PAGE_CHILDREN = 250
# URLs of one index have most of their text in common, so that the fastest level will do.
COMPRESSION_LEVEL = 1

# The URL, and the date that an index lists for it.
_Child = tuple[str, datetime | None]
_Common = tuple[str | None, str | None, int, bool]


@dataclass(slots=True)
class _Page:
    """Children of one index in a row; `packed` once there are no more to come."""

    common: _Common
    children: list[_Child] = field(default_factory=list)
    packed: bytes | None = None

    @property
    def is_full(self) -> bool:
        return self.packed is not None or len(self.children) >= PAGE_CHILDREN

    def pack(self) -> None:
        rows = [(url, lastmod and lastmod.isoformat()) for url, lastmod in self.children]
        self.packed = zlib.compress(json.dumps(rows).encode(), COMPRESSION_LEVEL)
        self.children = []

    def unpacked(self) -> list[_Child]:
        if self.packed is None:
            return self.children
        rows = json.loads(zlib.decompress(self.packed))
        return [(url, lastmod and datetime.fromisoformat(lastmod)) for url, lastmod in rows]

    def candidates(self) -> Iterator[CrawlCandidate]:
        parent_url, parent_host, depth, below_robots = self.common
        for url, lastmod in self.unpacked():
            yield CrawlCandidate(
                parse_url(url),
                DiscoveryMethod.SITEMAP_INDEX,
                depth=depth,
                parent_url=parent_url,
                parent_host=parent_host,
                listed_lastmod=lastmod,
                below_robots=below_robots,
            )


class _Pages:
    """The candidates themselves, as the deque that `asyncio.Queue` wants."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: deque[CrawlCandidate | _Page] = deque()
        self._first: Iterator[CrawlCandidate] = iter(())

    def __len__(self) -> int:
        return self._count

    def append(self, candidate: CrawlCandidate) -> None:
        self._count += 1
        if not candidate.is_child:
            self._waiting.append(candidate)
            return
        page = self._open_page(_common_of(candidate))
        page.children.append((candidate.address.url, candidate.listed_lastmod))
        if page.is_full:
            page.pack()

    def popleft(self) -> CrawlCandidate:
        found = next(self._first, None)
        while found is None:
            first = self._waiting.popleft()
            self._first = (
                iter((first,)) if isinstance(first, CrawlCandidate) else first.candidates()
            )
            found = next(self._first, None)
        self._count -= 1
        return found

    def _open_page(self, common: _Common) -> _Page:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, _Page) and last.common == common and not last.is_full:
            return last
        page = _Page(common)
        self._waiting.append(page)
        return page


class CandidateQueue(asyncio.Queue[CrawlCandidate]):
    """A queue of candidates; of children of indexes only what differs is kept."""

    _queue: _Pages

    def _init(self, _maxsize: int) -> None:
        self._queue = _Pages()

    def _put(self, item: CrawlCandidate) -> None:
        self._queue.append(item)

    def _get(self) -> CrawlCandidate:
        return self._queue.popleft()


def _common_of(candidate: CrawlCandidate) -> _Common:
    return (
        candidate.parent_url,
        candidate.parent_host,
        candidate.depth,
        candidate.below_robots,
    )
