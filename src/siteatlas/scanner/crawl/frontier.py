"""What is still to be read in a scan: each address once, limited in depth and number."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import datetime

from siteatlas.net.address import WebAddress, parse_url
from siteatlas.scanner.discovery.hosts import SiteHosts
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.scanner.problem_codes import ProblemCode


@dataclass(frozen=True, slots=True)
class CrawlCandidate:
    """A place where a sitemap may be, and how it came to our notice.

    `may_be_page`: a person gave the address, and its name is not that of a sitemap. If it is none,
    the address named the site and nothing is lost.
    """

    address: WebAddress
    method: DiscoveryMethod
    depth: int = 0
    parent_url: str | None = None
    parent_host: str | None = None
    listed_lastmod: datetime | None = None
    may_be_page: bool = False
    below_robots: bool = False

    @property
    def named_by_robots(self) -> bool:
        """Whether robots.txt names this document or an index above it."""
        return self.below_robots or self.method is DiscoveryMethod.ROBOTS_TXT

    @property
    def is_guess(self) -> bool:
        """Whether nobody told us of this place."""
        return self.method is DiscoveryMethod.COMMON_PATH

    @property
    def is_child(self) -> bool:
        """Whether an index lists it."""
        return self.method is DiscoveryMethod.SITEMAP_INDEX


class UrlLimit:
    """The URLs that a scan may still read."""

    def __init__(self, max_urls: int | None, urls_done: int = 0) -> None:
        self._left = None if max_urls is None else max(max_urls - urls_done, 0)

    @property
    def is_spent(self) -> bool:
        """Whether no URL more may be read."""
        return self._left == 0

    def admit(self, count: int) -> int:
        """How many of `count` URLs may be kept."""
        if self._left is None:
            return count
        kept = min(count, self._left)
        self._left -= kept
        return kept


@dataclass(slots=True)
class _Index:
    """What children of one index have in common, and how many of them are queued in a row."""

    common: tuple[str | None, str | None, int, bool]
    queued: int = 0

    def child(self, url: str, lastmod: datetime | None) -> CrawlCandidate:
        parent_url, parent_host, depth, below_robots = self.common
        return CrawlCandidate(
            parse_url(url),
            DiscoveryMethod.SITEMAP_INDEX,
            depth=depth,
            parent_url=parent_url,
            parent_host=parent_host,
            listed_lastmod=lastmod,
            below_robots=below_robots,
        )


# Thousands of children may wait, each for hours, so little is held of them: the URL, and the date
# where there is one.
_Queued = CrawlCandidate | str | tuple[str, datetime]


class Frontier:
    """A queue of candidates, first in, first out, that never takes the same address twice."""

    def __init__(self, site_host: str, *, max_documents: int, max_depth: int) -> None:
        self.hosts = SiteHosts(site_host)
        self._max_documents = max_documents
        self._max_depth = max_depth
        # Not a set: that takes nearly twice the memory.
        self._seen: dict[str, None] = {}
        self._contents: set[str] = set()
        self._documents = 0
        self._queue: asyncio.Queue[_Queued] = asyncio.Queue()
        self._indexes: deque[_Index] = deque()

    def add(self, candidate: CrawlCandidate) -> ProblemCode | None:
        """Queue a candidate; or the reason why it is not wanted."""
        address = candidate.address
        if address.url in self._seen:
            return ProblemCode.DUPLICATE
        if candidate.depth > self._max_depth:
            return ProblemCode.DEPTH_LIMIT
        if self._documents >= self._max_documents:
            return ProblemCode.DOCUMENT_LIMIT
        if candidate.parent_host and not self.hosts.follows(address.host, candidate.parent_host):
            return ProblemCode.CROSS_HOST
        if not self.hosts.allow_document(address.host, candidate.parent_host):
            return ProblemCode.CROSS_HOST_CAP
        self._seen[address.url] = None
        self._documents += 1
        self._queue.put_nowait(self._as_queued(candidate))
        return None

    def mark_read(self, candidate: CrawlCandidate, final_url: str) -> bool:
        """Whether the document at the end of the redirects has not been read yet."""
        if final_url == candidate.address.url:
            return True
        if final_url in self._seen:
            return False
        self._seen[final_url] = None
        return True

    def is_new_content(self, content_hash: str) -> bool:
        """Whether no other document of this scan had exactly this content."""
        known = content_hash in self._contents
        self._contents.add(content_hash)
        return not known

    async def next(self) -> CrawlCandidate:
        """Wait for a candidate; the taker calls `done` when it has been read."""
        queued = await self._queue.get()
        if isinstance(queued, CrawlCandidate):
            return queued
        url, lastmod = (queued, None) if isinstance(queued, str) else queued
        index = self._indexes[0]
        index.queued -= 1
        if not index.queued:
            self._indexes.popleft()
        return index.child(url, lastmod)

    def done(self) -> None:
        """One candidate has been read."""
        self._queue.task_done()

    async def drained(self) -> None:
        """Wait until every queued candidate has been read."""
        await self._queue.join()

    def _as_queued(self, candidate: CrawlCandidate) -> _Queued:
        if not candidate.is_child:
            return candidate
        common = (
            candidate.parent_url,
            candidate.parent_host,
            candidate.depth,
            candidate.below_robots,
        )
        if not self._indexes or self._indexes[-1].common != common:
            self._indexes.append(_Index(common))
        self._indexes[-1].queued += 1
        url, lastmod = candidate.address.url, candidate.listed_lastmod
        return url if lastmod is None else (url, lastmod)
