"""What is still to be read in a scan: each address once, limited in depth and number.

`candidate_queue.py` holds the queued candidates.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from siteatlas.hash_arrays import FEW_ARRAYS, HashArrays
from siteatlas.scanner.crawl.candidate_queue import CandidateQueue
from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.crawl.site_hosts import SiteHosts
from siteatlas.scanner.problem_codes import ProblemCode

HALF_OF_64_BITS = 1 << 63


class UrlLimit:
    """The URLs that a scan may still read."""

    def __init__(self, max_urls: int | None, urls_done: int = 0) -> None:
        self._left = None if max_urls is None else max(max_urls - urls_done, 0)

    @property
    def is_spent(self) -> bool:
        """Whether no more URLs may be read."""
        return self._left == 0

    def fits(self, count: int) -> bool:
        """Whether this many URLs may still be read."""
        return self._left is None or count <= self._left

    def admit(self, count: int) -> int:
        """How many of `count` URLs may be kept."""
        if self._left is None:
            return count
        kept = min(count, self._left)
        self._left -= kept
        return kept


class Frontier:
    """A queue of candidates, first in, first out, that accepts each address only once."""

    def __init__(self, site_host: str, *, max_documents: int, max_depth: int) -> None:
        self.hosts = SiteHosts(site_host)
        self._max_documents = max_documents
        self._max_depth = max_depth
        self._seen = HashArrays(FEW_ARRAYS)
        self._contents = HashArrays(FEW_ARRAYS)
        self._documents = 0
        self._documents_read = 0
        self._queue = CandidateQueue()

    def add(self, candidate: CrawlCandidate) -> ProblemCode | None:
        """Queue a candidate, or return the reason why not."""
        address = candidate.address
        key = _seen_key(address.url)
        if key in self._seen:
            return ProblemCode.DUPLICATE
        if candidate.depth > self._max_depth:
            return ProblemCode.DEPTH_LIMIT
        if self._documents >= self._max_documents:
            return ProblemCode.DOCUMENT_LIMIT
        if candidate.parent_host and not self.hosts.follows(address.host, candidate.parent_host):
            return ProblemCode.CROSS_HOST
        if not self.hosts.allow_document(address.host, candidate.parent_host):
            return ProblemCode.CROSS_HOST_CAP
        self._seen.add(key)
        self._documents += 1
        self._queue.put_nowait(candidate)
        return None

    def mark_seen(self, final_url: str) -> bool:
        """Mark the target of a redirect as seen; return False if it already was."""
        return self._seen.add(_seen_key(final_url))

    def unmark_seen(self, final_url: str) -> None:
        """Allow that another candidate is redirected to this URL."""
        self._seen.discard(_seen_key(final_url))

    def is_new_content(self, content_hash: str) -> bool:
        """Whether no other document of this scan had exactly this content."""
        return self._contents.add(_seen_key(content_hash))

    @property
    def documents_left(self) -> int:
        """How many of the documents that are known so far were not read to their end."""
        return self._documents - self._documents_read

    async def next(self) -> CrawlCandidate:
        """Wait for a candidate; the caller calls `done` when it has been read."""
        return await self._queue.get()

    def done(self) -> None:
        """One candidate has been read."""
        self._documents_read += 1
        self._queue.task_done()

    async def drained(self) -> None:
        """Wait until every queued candidate has been read."""
        await self._queue.join()


def _seen_key(text: str) -> int:
    """The signed 64-bit hash by which the crawl recognises a URL or a content hash again."""
    return xxh3_64_intdigest(text.encode()) - HALF_OF_64_BITS
