"""Listed entries sorted into new, changed and unchanged ones."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from uuid import uuid4

import orjson
import pytest

from siteatlas.catalog.url_copy import ROW_SIZE, date_numbers
from siteatlas.catalog.urls import StoredEntries, url_hash
from siteatlas.catalog.write_batch import WriteBatch
from siteatlas.processor.comparison import add_set_aside, fingerprints, record_entries
from siteatlas.processor.documents import ScannedDocument
from siteatlas.processor.entries import EntryMemory, MemoryBudget
from siteatlas.scanner.events import DiscoveryMethod, EntriesRead, EntryColumns

URL = "https://a.example/page"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def columns(*urls: str, **values) -> EntryColumns:
    """Entries that all have the same values; only the URL by default."""
    count = len(urls)
    return EntryColumns(
        list(urls),
        [values.get("lastmod")] * count,
        [values.get("changefreq")] * count,
        [values.get("priority")] * count,
        [values.get("extras")] * count,
        [values["lastmod_text"]] * count if "lastmod_text" in values else [],
    )


def stored_as(**values) -> StoredEntries:
    """What is stored of the page if it was listed with these values."""
    prints = fingerprints([values.get("changefreq")], [values.get("priority")], [None])
    dates = date_numbers([values.get("lastmod")])
    entries = StoredEntries()
    hashes, texts = array("q", [url_hash(URL)]), [values.get("lastmod_text")]
    entries.extend(hashes, array("q", prints), array("q", dates), texts, bytes(1))
    return entries


def compared(
    stored: StoredEntries | None, *listed: EntryColumns, trusted: bool = True
) -> tuple[WriteBatch, ScannedDocument]:
    """The batch to write, and the document with its tally."""
    memory = EntryMemory(MemoryBudget(10**9), stored, trusted=trusted)
    subject = ScannedDocument(
        uuid4(), URL, URL, DiscoveryMethod.ROBOTS_TXT, True, False, memory=memory
    )
    batch = WriteBatch()
    for part in listed:
        record_entries(subject, EntriesRead(subject.url, part), batch)
    add_set_aside(subject, batch)
    return batch, subject


def test_an_entry_that_is_not_stored_is_new():
    batch, subject = compared(None, columns(URL, priority=0.5, extras={"b": 1, "a": 2}))
    new = batch.new_urls
    assert (new.url, new.url_hash, new.priority) == ([URL], [url_hash(URL)], [0.5])
    assert new.runs == [(subject.id, 1)]
    assert orjson.loads(new.extras[0] or "") == {"a": 2, "b": 1}
    assert len(batch.changed_urls) == 0


@pytest.mark.parametrize("values", [{"priority": 0.5}, {"lastmod": NOON}, {}])
def test_an_entry_that_is_stored_as_it_is_listed_costs_no_write(values):
    batch, subject = compared(stored_as(**values), columns(URL, **values))
    assert (batch.url_row_count, subject.tally) == (0, None)


@pytest.mark.parametrize(
    "before",
    [{}, {"priority": 0.4}, {"changefreq": "daily", "priority": 0.5}, {"lastmod": NOON}],
)
def test_an_entry_with_another_value_is_changed(before):
    batch, _ = compared(stored_as(**before), columns(URL, priority=0.5))
    changed = batch.changed_urls
    assert (len(batch.new_urls), changed.url, changed.priority) == (0, [URL], [0.5])


def test_a_date_that_is_listed_in_another_form_is_a_change():
    month = columns(URL, lastmod=NOON, lastmod_text="2026-11")
    batch, _ = compared(stored_as(lastmod=NOON), month)
    assert batch.changed_urls.lastmod_text == ["2026-11"]
    batch, _ = compared(stored_as(lastmod=NOON, lastmod_text="2026-11"), month)
    assert batch.url_row_count == 0


def test_a_moved_date_that_is_not_trusted_is_no_change():
    moved, more = columns(URL, lastmod=NOON), columns(URL, lastmod=NOON, priority=0.5)
    batch, subject = compared(stored_as(), moved, trusted=False)
    assert subject.memory is not None
    assert (batch.url_row_count, subject.memory.moved, subject.memory.dated) == (0, 1, 1)
    batch, _ = compared(stored_as(), more, trusted=False)
    assert batch.changed_urls.priority == [0.5]


def test_the_order_of_keys_in_extras_is_no_change():
    first, _ = compared(None, columns(URL, extras={"a": 1, "b": 2}))
    second, _ = compared(None, columns(URL, extras={"b": 2, "a": 1}))
    assert first.new_urls.fingerprint == second.new_urls.fingerprint


def test_a_url_listed_twice_is_new_once_and_noted():
    batch, subject = compared(None, columns(URL), columns(URL, URL + "/2", priority=0.1))
    assert (batch.new_urls.url, len(batch.changed_urls)) == ([URL, URL + "/2"], 0)
    assert batch.repeated_urls.priority == [0.1]
    assert subject.tally is not None
    assert subject.tally.problems == {"duplicate_url": 1}


def test_the_size_of_rows_counts_their_extras():
    plain, _ = compared(None, columns(URL))
    rich, _ = compared(None, columns(URL, extras={"title": "x" * 1000}))
    assert plain.new_urls.size == ROW_SIZE
    assert rich.new_urls.size > ROW_SIZE + 1000
