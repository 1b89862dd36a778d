"""Entries recognized by the digest of their text: the same is stored as if all had been read."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siteatlas.catalog.url_copy import UrlRow, UrlRows, date_numbers
from siteatlas.catalog.urls import LoadedEntries
from siteatlas.catalog.write_batch import WriteBatch
from siteatlas.errors import ScanError
from siteatlas.processor import entries as entry_memory
from siteatlas.processor.comparison import Comparison, add_set_aside
from siteatlas.processor.documents import ScannedDocument
from siteatlas.processor.entries import MISSING, EntryMemory, MemoryBudget, StoredEntries
from siteatlas.scanner.events import DiscoveryMethod, EntriesRead
from siteatlas.scanner.reading.document import DocumentReader
from siteatlas.scanner.reading.entries import ReadResult

ADDRESS = "https://a.example/sitemap.xml"
ROOT = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    ' xmlns:news="http://www.google.com/schemas/sitemap-news/0.9">'
)
NEWS = "<news:news><news:title>New</news:title></news:news>"
SITEMAP = UUID(int=1)


def entry(page: int, date: str = "2026-11-02", more: str = "") -> str:
    return f"<url><loc>https://a.example/{page}/x</loc><lastmod>{date}</lastmod>{more}</url>\n"


ODD = [
    "<!-- a comment -->",
    entry(20, more="<!-- </url> -->"),
    entry(21, more=NEWS),
    entry(22, "junk"),
    entry(23, "2099-01-01"),
    "<url><loc>/relative</loc></url>",
    "<url><loc>ftp://a.example/</loc></url>",
    "<url><loc>https://a.example/?a=1&amp;b=2</loc></url>",
    "<url><loc>https://a.example/?a=1&b=2</loc></url>",
    "<url>\n <loc> https://a.example/blank </loc></url>",
    "<url><loc>https://a.example/two words</loc></url>",
    "<url><loc>https://a.example/é</loc></url>",
    "<url><loc><![CDATA[https://a.example/cdata]]></loc></url>",
    "<url><priority>0.3</priority><loc>https://a.example/1/x</loc></url>",
    "<url><loc>https://a.example/broken</url>",
]
DATES = ("2026-10-01", "2026-11-02", "2026-11-02T00:00:00+00:00", "2026-11-02T00:00:00+02:00")
USUAL = [entry(page, date) for page in range(8) for date in DATES]
VERSIONS = st.lists(
    st.lists(st.sampled_from(USUAL) | st.sampled_from(USUAL) | st.sampled_from(ODD), max_size=30),
    min_size=2,
    max_size=4,
)


@dataclass
class State:
    """What is stored of a document; `may_recognize` after a complete read."""

    rows: dict[int, UrlRow] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    may_recognize: bool = False

    def entries(self) -> StoredEntries:
        rows = self.rows.values()
        found = StoredEntries()
        found.extend(
            LoadedEntries(
                array("q", self.rows),
                array("q", [row.fingerprint for row in rows]),
                array("q", date_numbers(row.lastmod for row in rows)),
                [row.lastmod_text for row in rows],
                bytes(MISSING if key in self.missing else 0 for key in self.rows),
                array("q", [0 if r.url_hash in self.missing else r.entry_digest for r in rows]),
            )
        )
        return found

    def listed(self) -> dict[int, tuple[Any, ...]]:
        """The rows without their digests, which may be missing where there was a problem."""
        return {key: row[:-1] for key, row in self.rows.items() if key not in self.missing}


@dataclass
class Reading:
    """One read of a document: what it told, besides what is stored after it."""

    reader: DocumentReader
    subject: ScannedDocument
    batch: WriteBatch
    recognized: int
    error: str | None

    def summary(self) -> dict[str, Any]:
        memory, breakdown, tally = self.subject.memory, self.subject.breakdown, self.subject.tally
        assert memory is not None
        return {
            "urls": len(memory),
            "dated": memory.dated,
            "moved": memory.moved,
            "changed": sorted(self.batch.changed_urls.url),
            "new": sorted(self.batch.new_urls.url),
            "breakdown": breakdown.stored() if breakdown else {},
            "repeated": tally.counts() if tally else {},
            "problems": self.reader.tally.counts(),
            "samples": self.reader.tally.kept_samples(),
            "skipped": self.reader.tally.skipped,
            "entries": self.reader.entry_count,
            "is_window": self.reader.is_window,
            "error": self.error,
        }


def read(state: State, *entries: str, recognize: bool, late: bool = False) -> Reading:
    """Read a version of the document. `late`: all of it before the first entry is recorded."""
    memory = EntryMemory(MemoryBudget(10**9), state.entries())
    reader = DocumentReader(base_url=ADDRESS, with_digests=True, block_bytes=1)
    if recognize and state.may_recognize:
        reader.known_entries = memory.known_entries
    method = DiscoveryMethod.ROBOTS_TXT
    subject = ScannedDocument(SITEMAP, ADDRESS, ADDRESS, method, True, False, memory=memory)
    reading = Reading(reader, subject, WriteBatch(), 0, None)
    results = results_of(reading, f"{ROOT}{''.join(entries)}</urlset>".encode())
    for result in list(results) if late else results:
        reading.recognized += len(result.recognized)
        event = EntriesRead(ADDRESS, result.columns, result.recognized)
        Comparison().record(subject, event, reading.batch)
    add_set_aside(subject, reading.batch)
    store(state, reading)
    return reading


def results_of(reading: Reading, data: bytes, size: int = 700) -> Iterator[ReadResult]:
    try:
        for first in range(0, len(data), size):
            yield from reading.reader.feed(data[first : first + size])
        yield from reading.reader.close()
    except ScanError as error:
        reading.error = error.code


def store(state: State, reading: Reading) -> None:
    """Write what the database would hold after a read."""
    batch, memory = reading.batch, reading.subject.memory
    assert memory is not None
    for row in rows_of(batch.new_urls):
        state.rows.setdefault(row.url_hash, row)
    for row in rows_of(batch.changed_urls):
        # The database stores a changed row behind the others.
        del state.rows[row.url_hash]
        state.rows[row.url_hash] = row
        state.missing.discard(row.url_hash)
    for row in batch.repeated_urls.values():
        if row.order > state.rows[row.url_hash].order:
            state.rows[row.url_hash] = row
    state.may_recognize = reading.error is None and not reading.subject.must_read_again
    if reading.error is None:
        state.missing.update(memory.newly_missing())


def rows_of(rows: UrlRows) -> list[UrlRow]:
    columns = [getattr(rows, name) for name in UrlRow._fields]
    return [UrlRow(*values) for values in zip(*columns, strict=True)]


# Making a site with its versions takes long on a busy machine.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VERSIONS, st.booleans())
def test_the_same_is_stored_and_reported_as_if_all_entries_were_read(versions, late):
    full, recognizing = State(), State()
    for entries in versions:
        expected = read(full, *entries, recognize=False).summary()
        assert read(recognizing, *entries, recognize=True, late=late).summary() == expected
        assert recognizing.listed() == full.listed()
        assert recognizing.missing == full.missing


def test_only_entries_that_changed_are_read():
    state, pages = State(), [entry(page) for page in range(100)]
    read(state, *pages, recognize=True)
    pages[40] = entry(40, "2026-11-09")
    second = read(state, *pages, recognize=True)
    assert (second.recognized, second.batch.changed_urls.url) == (99, ["https://a.example/40/x"])


@pytest.mark.parametrize("gone", [3, 90])
def test_entries_behind_removed_ones_are_recognized(gone):
    state, pages = State(), [entry(page) for page in range(200)]
    read(state, *pages, recognize=True)
    second = read(state, *pages[:10], *pages[10 + gone :], recognize=True)
    assert second.recognized >= 190 - gone - 64
    assert len(state.missing) == gone


def test_entries_behind_new_ones_are_recognized():
    state, pages = State(), [entry(page) for page in range(100)]
    read(state, *pages, recognize=True)
    new = [entry(page) for page in range(200, 300)]
    second = read(state, *new, *pages, recognize=True)
    # The first entry was directly behind the root, and is now behind a line break.
    assert (second.recognized, len(second.batch.new_urls)) == (99, 100)


def test_a_document_with_nothing_in_common_is_read_as_usual():
    state = State()
    read(state, *(entry(page) for page in range(5_000)), recognize=True)
    second = read(state, *(entry(page, "2026-11-09") for page in range(5_000)), recognize=True)
    assert (second.recognized, len(second.batch.changed_urls)) == (0, 5_000)


def test_another_root_or_another_address_may_change_the_meaning_of_every_entry():
    other_root, pages = ROOT.replace("news/0.9", "news/1.0"), map(entry, range(100))
    found, text = list[int](), "".join(pages)
    for address, root in ((ADDRESS, ROOT), (f"{ADDRESS}?2", ROOT), (ADDRESS, other_root)):
        reader = DocumentReader(base_url=address, with_digests=True, block_bytes=1)
        results = [*reader.feed(f"{root}{text}</urlset>".encode()), *reader.close()]
        found += [digest for result in results for digest in result.columns.digests]
    assert len(found) == len(set(found)) == 300


def test_a_document_is_read_again_if_an_older_entry_may_have_replaced_a_recognized_one(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(entry_memory, "MAX_SET_ASIDE", 0)
    state, others = State(), [entry(page) for page in range(2, 30)]
    older, latest = entry(1, "2026-11-01"), entry(1, "2026-11-02")
    read(state, *others, latest, recognize=True)
    read(state, older, *others, latest, recognize=True)
    assert not state.may_recognize
    read(state, older, *others, latest, recognize=True)
    dates = {row.url: f"{row.lastmod:%d}" for row in state.rows.values()}
    assert dates["https://a.example/1/x"] == "02"
