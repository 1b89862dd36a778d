"""A second scan of a changed document recognizes the entries that the caller knows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from siteatlas.scanner.events import (
    DocumentClosed,
    EntriesRead,
    EntryColumns,
    RecognizedEntries,
)
from siteatlas.scanner.options import KnownDocument, KnownEntries, ScanMemory, ScanOptions
from siteatlas.scanner.reading.entries import ReadResult
from tests.fixtures.documents import urlset_of
from tests.fixtures.scans import ScanRecord, record_scan

ROBOTS = "Sitemap: /s.xml"
# More than the last few kilobytes of a document, which are always read.
PAGES = [f"https://a.example/{number}" for number in range(300)]


class Digests:
    """Entries by their digest, each of which is found once."""

    def __init__(self, record: ScanRecord) -> None:
        columns = [event.columns for event in record.all(EntriesRead)]
        digests = [digest for some in columns for digest in some.all_digests()]
        self.urls = [url for some in columns for url in some.urls]
        self._positions = {digest: n for n, digest in enumerate(digests) if digest}

    def find(self, digests: Sequence[int]) -> list[int | None]:
        return [self._positions.pop(digest, None) for digest in digests]


class Loader:
    """What the caller stores, and what it was asked for."""

    def __init__(self, known: Digests | None = None) -> None:
        self._known = known
        self.asked: list[str] = []
        self.forgotten: list[str] = []

    async def load(self, url: str) -> KnownEntries | None:
        self.asked.append(url)
        return self._known

    async def forget(self, url: str) -> None:
        self.forgotten.append(url)


async def scan_twice(site, make_analyzer, second: bytes, options: ScanOptions = ScanOptions()):
    """Read the pages, then another version of the document."""
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": urlset_of(PAGES)}
    memory = ScanMemory(entries=Loader())
    first = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    (closed,) = first.all(DocumentClosed)
    document = KnownDocument(
        closed.url,
        content_hash=closed.content_hash,
        content_length=closed.wire_bytes,
        entry_count=closed.entry_count,
        type=closed.type,
    )
    site.pages["/s.xml"] = second
    digests = Digests(first)
    loader = Loader(digests)
    memory = ScanMemory({closed.url: document}, loader)
    analyzer = make_analyzer(site.host_port)
    return digests, loader, await record_scan(analyzer, site.base, options, memory)


def recognized_in(record: ScanRecord) -> RecognizedEntries:
    found = RecognizedEntries()
    for event in record.all(EntriesRead):
        if event.recognized:
            found.extend(event.recognized)
    return found


async def test_known_entries_are_recognized_and_all_others_are_read(site, make_analyzer):
    new = ["https://a.example/new"]
    listed = urlset_of([PAGES[0], *new, *PAGES[1:]])
    digests, loader, record = await scan_twice(site, make_analyzer, listed)
    found = recognized_in(record)
    assert len(found) > len(PAGES) // 2
    assert found.urls == [digests.urls[position] for position in found.positions]
    assert sorted([*found.urls, *record.urls]) == sorted([*PAGES, *new])
    assert record.all(DocumentClosed)[0].entry_count == len(PAGES) + 1
    assert (len(loader.asked), loader.forgotten) == (1, [])


@pytest.mark.parametrize("second", [b"<html></html>", b"", b"junk"])
async def test_what_was_loaded_of_a_document_that_is_no_sitemap_is_dropped(
    site, make_analyzer, second
):
    _, loader, _ = await scan_twice(site, make_analyzer, second)
    assert loader.forgotten == loader.asked != []


async def test_entries_are_not_loaded_if_the_document_exceeds_the_limit(site, make_analyzer):
    listed = urlset_of([*PAGES, "https://a.example/new"])
    _, loader, record = await scan_twice(site, make_analyzer, listed, ScanOptions(max_urls=10))
    assert (loader.asked, record.urls) == ([], PAGES[:10])


async def test_without_a_caller_that_knows_entries_none_has_a_digest(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": urlset_of(PAGES)}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert not any(event.columns.digests for event in record.all(EntriesRead))


@pytest.mark.parametrize(
    ("limit", "read", "recognized"), [(0, "", ""), (2, "b", "a"), (4, "bd", "ac"), (9, "bd", "ace")]
)
def test_a_limit_keeps_the_first_entries_in_the_order_of_the_document(limit, read, recognized):
    columns = EntryColumns(["b", "d"], [None] * 2, [None] * 2, [None] * 2, [None] * 2)
    result = ReadResult(columns, recognized=RecognizedEntries([0, 1, 2], [*"ace"]), places=[1, 3])
    result.limit_entries(limit)
    assert ("".join(result.columns.urls), "".join(result.recognized.urls)) == (read, recognized)
