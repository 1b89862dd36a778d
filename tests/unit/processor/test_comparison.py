"""Listed entries sorted into new, changed and unchanged ones by hash and fingerprint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import orjson
import pytest

from siteatlas.processor.comparison import ROW_SIZE, Comparison, Fingerprints
from siteatlas.processor.documents import ScannedDocument
from siteatlas.processor.entry_memory import EntryMemory
from siteatlas.processor.memory_budget import MemoryBudget
from siteatlas.scanner.events import DiscoveryMethod, EntryColumns
from siteatlas.storage.hashes import url_hash
from siteatlas.storage.statements.url_rows import UrlRows

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


def document(stored: dict[int, int | None]) -> ScannedDocument:
    memory = EntryMemory(MemoryBudget(10**9), stored)
    return ScannedDocument(
        uuid4(), URL, URL, DiscoveryMethod.ROBOTS_TXT, True, False, memory=memory
    )


def fingerprint(**values) -> int:
    extras = values.pop("extra_text", None)
    texts = values.pop("stored_text", None)
    (found,) = Fingerprints().fingerprint_entries(
        columns(URL, **values), [extras], texts and [texts]
    )
    return found


def compared(stored: dict[int, int | None], *listed: EntryColumns):
    """The rows to insert and to update, and the document with its tally."""
    subject, new, changed = document(stored), UrlRows(), UrlRows()
    for part in listed:
        Comparison().classify(subject, part, new, changed)
    return new, changed, subject


DIFFERENT: list[dict[str, Any]] = [
    {},
    {"lastmod": NOON},
    {"lastmod": NOON + timedelta(microseconds=1)},
    {"changefreq": "daily"},
    {"priority": 0.5},
    {"priority": 0.0},
    {"extra_text": '{"images":1}'},
    {"lastmod": NOON, "stored_text": "2026-11"},
]


def test_every_listed_value_changes_the_fingerprint():
    assert len({fingerprint(**values) for values in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("values", DIFFERENT)
def test_a_fingerprint_is_stable_and_fits_a_signed_bigint(values):
    assert fingerprint(**values) == fingerprint(**values)
    assert -(2**63) <= fingerprint(**values) < 2**63


def test_one_moment_in_two_time_zones_has_one_fingerprint():
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    assert fingerprint(lastmod=NOON) == fingerprint(lastmod=elsewhere)


def test_fingerprints_stay_what_earlier_versions_stored():
    # A different number would make every stored URL look changed after an upgrade.
    assert fingerprint() == 5003479914110023177
    assert fingerprint(lastmod=NOON, changefreq="daily", priority=0.5) == -2610729212527420250


def test_an_entry_that_is_not_stored_is_new():
    new, changed, subject = compared({}, columns(URL, priority=0.5, extras={"b": 1, "a": 2}))
    assert (new.url, new.url_hash, new.priority) == ([URL], [url_hash(URL)], [0.5])
    assert new.runs == [(subject.id, 1)]
    assert orjson.loads(new.extras[0] or "") == {"a": 2, "b": 1}
    assert len(changed) == 0


def test_an_entry_that_is_stored_as_it_is_listed_costs_no_write():
    stored: dict[int, int | None] = {url_hash(URL): fingerprint(priority=0.5)}
    new, changed, subject = compared(stored, columns(URL, priority=0.5))
    assert (len(new), len(changed), subject.tally) == (0, 0, None)


@pytest.mark.parametrize(
    "before", [{}, {"priority": 0.4}, {"changefreq": "daily", "priority": 0.5}]
)
def test_an_entry_with_another_value_is_changed(before):
    stored: dict[int, int | None] = {url_hash(URL): fingerprint(**before)}
    new, changed, _ = compared(stored, columns(URL, priority=0.5))
    assert (len(new), changed.url, changed.priority) == (0, [URL], [0.5])


def test_the_order_of_keys_in_extras_is_no_change():
    first, _, _ = compared({}, columns(URL, extras={"a": 1, "b": 2}))
    second, _, _ = compared({}, columns(URL, extras={"b": 2, "a": 1}))
    assert first.fingerprint == second.fingerprint


def test_a_url_listed_twice_is_written_once_and_noted():
    new, changed, subject = compared({}, columns(URL), columns(URL, URL + "/2", priority=0.1))
    assert (new.url, len(changed)) == ([URL, URL + "/2"], 0)
    assert subject.tally is not None
    assert subject.tally.problems == {"duplicate_url": 1}


def test_the_size_of_rows_counts_their_extras():
    plain, _, _ = compared({}, columns(URL))
    rich, _, _ = compared({}, columns(URL, extras={"title": "x" * 1000}))
    assert plain.size == ROW_SIZE
    assert rich.size > ROW_SIZE + 1000
