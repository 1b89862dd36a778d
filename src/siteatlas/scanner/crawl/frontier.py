"""What is still to be read in a scan: each address once, limited in depth and number.

`Frontier` decides what is queued and recognises addresses and contents again; `CandidateQueue`
holds what waits; `UrlLimit` counts the URLs that the scan may still read.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from xxhash import xxh3_64_intdigest

from siteatlas.hash_arrays import FEW_ARRAYS, HashArrays
from siteatlas.net.address import parse_url
from siteatlas.scanner.crawl.document import CrawlCandidate, SiteHosts
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.scanner.problem_codes import ProblemCode

BLOCK_CHILDREN = 250


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
        self._queue.append(candidate)
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

    @property
    def waiting(self) -> int:
        """How many candidates wait to be read."""
        return len(self._queue)

    def next(self) -> CrawlCandidate | None:
        """The next candidate, None if none waits; the caller calls `done` when it was read."""
        return self._queue.popleft() if self._queue else None

    def done(self) -> None:
        """One candidate has been read."""
        self._documents_read += 1


def _seen_key(text: str) -> int:
    """The signed 64-bit hash by which the crawl recognises a URL or a content hash again."""
    return xxh3_64_intdigest(text.encode()) - (1 << 63)


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


# The URL, and the date that an index lists for it.
_Child = tuple[str, datetime | None]
# Parent URL, parent host, depth, and whether robots.txt names an index above it.
_SharedFields = tuple[str | None, str | None, int, bool]


class CandidateQueue:
    """The candidates that wait to be read, first in, first out, in little memory.

    Thousands of children of indexes may wait in each of many scans, for hours. They are kept as
    compressed blocks of URLs; the first and the last block are not compressed.
    """

    def __init__(self) -> None:
        self._count = 0
        self._waiting: deque[CrawlCandidate | _ChildBlock] = deque()
        self._first: Iterator[CrawlCandidate] = iter(())

    def __len__(self) -> int:
        return self._count

    def append(self, candidate: CrawlCandidate) -> None:
        self._count += 1
        if not candidate.is_child:
            self._waiting.append(candidate)
            return
        block = self._open_block(
            (
                candidate.parent_url,
                candidate.parent_host,
                candidate.depth,
                candidate.below_robots,
            )
        )
        block.children.append((candidate.address.url, candidate.listed_lastmod))
        if block.is_full:
            block.compress()

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

    def _open_block(self, shared: _SharedFields) -> _ChildBlock:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, _ChildBlock) and last.shared == shared and not last.is_full:
            return last
        block = _ChildBlock(shared)
        self._waiting.append(block)
        return block


@dataclass(slots=True)
class _ChildBlock:
    """Consecutive children of one index that wait for the crawl; `compressed` once it is full."""

    shared: _SharedFields
    children: list[_Child] = field(default_factory=list)
    compressed: bytes | None = None

    @property
    def is_full(self) -> bool:
        return self.compressed is not None or len(self.children) >= BLOCK_CHILDREN

    def compress(self) -> None:
        rows = [(url, lastmod and lastmod.isoformat()) for url, lastmod in self.children]
        # URLs of one index have most of their text in common, so the fastest level suffices.
        self.compressed = zlib.compress(json.dumps(rows).encode(), 1)
        self.children = []

    def decompressed(self) -> list[_Child]:
        if self.compressed is None:
            return self.children
        rows = json.loads(zlib.decompress(self.compressed))
        return [(url, lastmod and datetime.fromisoformat(lastmod)) for url, lastmod in rows]

    def candidates(self) -> Iterator[CrawlCandidate]:
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
