"""Known documents of a site in little memory, as the map in which the scanner looks them up.

A scan may know thousands of documents for hours. They are kept in compressed pages and found by
the hashes of their addresses. `known_documents` decides what is known of each.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from siteatlas.hash_arrays import index_of
from siteatlas.scanner.events import ChildLink, SitemapType, Validators
from siteatlas.scanner.scan_memory import KnownDocument
from siteatlas.storage.hashes import url_hash

DOCUMENTS_PER_PAGE = 100
# Addresses of one site have most of their text in common, so the fastest level suffices.
COMPRESSION_LEVEL = 1


class PagedDocument(NamedTuple):
    """A stored document, with the date that an index lists for it.

    `known` is what the scanner may know of it, None if that is nothing. `children` are the numbers
    of the documents that an index lists, in the order in which they are added.
    """

    url: str
    requested_url: str
    lastmod: datetime | None
    known: KnownDocument | None
    children: Sequence[int] = ()


class KnownPages(Mapping[str, KnownDocument]):
    """The known documents of one site, by requested and by final URL. `add` all, then `index`."""

    def __init__(self) -> None:
        self._pages: list[bytes] = []
        self._last: tuple[int, list[Any]] = (-1, [])
        self._unsorted: list[tuple[int, bool, int]] = []
        self._hashes = array("q")
        self._numbers = array("L")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        for number in range(len(self._pages)):
            for url, requested_url, _, values, _ in self._page(number):
                if values is not None:
                    yield from dict.fromkeys((url, requested_url))

    def __getitem__(self, url: str) -> KnownDocument:
        index = index_of(self._hashes, url_hash(url))
        if index is None:
            raise KeyError(url)
        final_url, requested_url, _, values, children = self._record(self._numbers[index])
        if url not in (final_url, requested_url):
            raise KeyError(url)
        return _unpacked(final_url, values)._replace(children=tuple(self._links(children)))

    def add(self, documents: Sequence[PagedDocument]) -> None:
        """Add one page; all but the last have `DOCUMENTS_PER_PAGE` documents."""
        first = len(self._pages) * DOCUMENTS_PER_PAGE
        records = []
        for number, one in enumerate(documents, start=first):
            lastmod = one.lastmod and one.lastmod.isoformat()
            values = None if one.known is None else _packed(one.known)
            records.append((one.url, one.requested_url, lastmod, values, list(one.children)))
            if values is not None:
                self._unsorted.append((url_hash(one.url), False, number))
                self._unsorted.append((url_hash(one.requested_url), True, number))
        self._pages.append(zlib.compress(orjson.dumps(records), COMPRESSION_LEVEL))

    def index(self) -> None:
        """Make the documents findable; a final address comes before a requested one."""
        self._unsorted.sort()
        for key, _, number in self._unsorted:
            if not self._hashes or self._hashes[-1] != key:
                self._hashes.append(key)
                self._numbers.append(number)
        self._unsorted = []

    def _links(self, children: Sequence[int]) -> Iterator[ChildLink]:
        """The documents with these numbers as an index lists them."""
        for number in children:
            _, requested_url, lastmod, _, _ = self._record(number)
            yield ChildLink(requested_url, lastmod and datetime.fromisoformat(lastmod))

    def _record(self, number: int) -> Any:
        """What was added of one document."""
        page, place = divmod(number, DOCUMENTS_PER_PAGE)
        return self._page(page)[place]

    def _page(self, number: int) -> list[Any]:
        """A decompressed page; the last one is kept, since neighbours are often asked for."""
        if self._last[0] != number:
            self._last = number, orjson.loads(zlib.decompress(self._pages[number]))
        return self._last[1]


def _packed(known: KnownDocument) -> list[Any]:
    """A known document without its address and its children, as JSON can hold it."""
    _, done, validators, _, *others = known
    return [done, *validators, *others]


def _unpacked(url: str, values: list[Any]) -> KnownDocument:
    """A known document from what `_packed` returned."""
    done, etag, last_modified, *others, kind = values
    document_type = None if kind is None else SitemapType(kind)
    fields: list[Any] = [url, done, Validators(etag, last_modified), (), *others, document_type]
    return KnownDocument(*fields)
