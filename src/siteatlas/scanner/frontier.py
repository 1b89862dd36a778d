"""What is still to be read in one scan: each address once, within limits of depth and number."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from siteatlas.net.address import WebAddress
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.scanner.hosts import SiteHosts

DUPLICATE = "duplicate"
DOCUMENT_LIMIT = "document_limit"


@dataclass(frozen=True, slots=True)
class Candidate:
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


class Frontier:
    """A queue of candidates, first in, first out, that never takes the same address twice."""

    def __init__(self, site_host: str, *, max_documents: int, max_depth: int) -> None:
        self.hosts = SiteHosts(site_host)
        self._max_documents = max_documents
        self._max_depth = max_depth
        self._seen: set[str] = set()
        self._contents: set[str] = set()
        self._documents = 0
        self._queue: asyncio.Queue[Candidate] = asyncio.Queue()

    def add(self, candidate: Candidate) -> str | None:
        """Queue a candidate; or the reason why it is not wanted, as a word."""
        address = candidate.address
        if address.url in self._seen:
            return DUPLICATE
        if candidate.depth > self._max_depth:
            return "depth_limit"
        if self._documents >= self._max_documents:
            return DOCUMENT_LIMIT
        if candidate.parent_host and not self.hosts.follows(address.host, candidate.parent_host):
            return "cross_host"
        if not self.hosts.take(address.host, candidate.parent_host):
            return "cross_host_cap"
        self._seen.add(address.url)
        self._documents += 1
        self._queue.put_nowait(candidate)
        return None

    def claim(self, candidate: Candidate, final_url: str) -> bool:
        """Whether the document at the end of the redirects has not been read yet."""
        if final_url == candidate.address.url:
            return True
        if final_url in self._seen:
            return False
        self._seen.add(final_url)
        return True

    def is_new_content(self, content_hash: str) -> bool:
        """Whether no other document of this scan had exactly this content."""
        known = content_hash in self._contents
        self._contents.add(content_hash)
        return not known

    async def next(self) -> Candidate:
        """Wait for a candidate; the taker calls `done` when it has been read."""
        return await self._queue.get()

    def done(self) -> None:
        """One candidate has been read."""
        self._queue.task_done()

    async def drained(self) -> None:
        """Wait until every queued candidate has been read."""
        await self._queue.join()
