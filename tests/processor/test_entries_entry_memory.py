"""What is held of an open document: exact in either form, counted, and small when it must be."""

from __future__ import annotations

import gc
import tracemalloc
from array import array
from dataclasses import dataclass, field
from random import Random

import pytest

from siteatlas.catalog.url_copy import NO_DATE, UrlRows
from siteatlas.catalog.urls import MAX_SEARCHES, MISSING, REMOVED, StoredEntries
from siteatlas.processor import entries as entry_memory
from siteatlas.processor.entries import EntryMemory, MemoryBudget
from tests.fixtures.entries import listed_columns

Value = tuple[int, int]


@pytest.fixture(autouse=True)
def _small_documents_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_memory, "MIN_ENTRIES", 100)


def numbers(count: int, seed: int = 7) -> list[int]:
    random = Random(seed)
    return [random.randint(-(2**63), 2**63 - 1) for _ in range(count)]


@dataclass
class Site:
    """Entries as stored, by hash: date and fingerprint, and flags; and as listed."""

    stored: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    listed: list[tuple[int, int, int]] = field(default_factory=list)

    def entries(self, *, in_order: bool) -> StoredEntries:
        found = StoredEntries(in_order=in_order)
        # If not in the order of hashes, then in that in which the entries are listed.
        ordered = sorted(self.stored.items()) if in_order else list(self.stored.items())
        for first in range(0, len(ordered), 100):
            part = ordered[first : first + 100]
            found.extend(
                array("q", [key for key, _ in part]),
                array("q", [value for _, (_, value, _) in part]),
                array("q", [date for _, (date, _, _) in part]),
                None,
                bytes(flags for _, (_, _, flags) in part),
            )
        return found

    def parts(self) -> list[UrlRows]:
        """The listed entries as the recorder takes them in, 100 at a time."""
        chunks = [self.listed[n : n + 100] for n in range(0, len(self.listed), 100)]
        return [
            listed_columns(
                [key for key, _, _ in part],
                [value for _, _, value in part],
                [date for _, date, _ in part],
            )
            for part in chunks
        ]

    def latest(self) -> dict[int, Value]:
        """What counts of each listed URL."""
        found: dict[int, Value] = {}
        for key, date, value in self.listed:
            found[key] = max(found.get(key, (NO_DATE, -(2**63))), (date, value))
        return found


def a_site(*, repeats: bool = True) -> Site:
    """Listings of which some are repeated, stored, changed, missing or removed."""
    random = Random(3)
    keys = numbers(600)
    listed = keys[:500] + (random.choices(keys[:500], k=300) if repeats else [])
    random.shuffle(listed)
    site = Site(
        listed=[(key, random.choice([NO_DATE, 1, 2]), random.randint(0, 1)) for key in listed]
    )
    for key in keys[200:]:
        value = random.choice([NO_DATE, 1, 2]), random.randint(0, 1)
        site.stored[key] = (*value, random.choice([0, 0, 0, MISSING, REMOVED]))
    return site


def written(site: Site, memory: EntryMemory) -> tuple[dict[int, Value], set[int]]:
    """The values that are stored after a read, and which of them were written."""
    state = {key: (date, value) for key, (date, value, _) in site.stored.items()}
    written: set[int] = set()
    aside: dict[int, Value] = {}
    for part in site.parts():
        picked = memory.pick(part)

        def value(index: int, part: UrlRows = part) -> Value:
            return part.dates[index], part.fingerprint[index]

        for index in (*picked.new, *picked.changed):
            state[part.url_hash[index]] = value(index)
            written.add(part.url_hash[index])
        for index in picked.later:
            key = part.url_hash[index]
            if value(index) > state[key]:
                state[key] = value(index)
                written.add(key)
        for index in picked.set_aside:
            key = part.url_hash[index]
            aside[key] = max(aside.get(key, (NO_DATE, -1)), value(index))
        for index in picked.settled:
            aside.pop(part.url_hash[index])
    return state | aside, written | set(aside)


@pytest.mark.parametrize("most", [0, 10_000, 20_000, 10**9])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("repeats", [True, False])
def test_the_latest_entry_of_each_url_is_stored_in_every_form(most, in_order, repeats):
    site = a_site(repeats=repeats)
    memory = EntryMemory(MemoryBudget(most), site.entries(in_order=in_order))
    state, changed = written(site, memory)
    latest = site.latest()
    kept = {key: (date, value) for key, (date, value, _) in site.stored.items()}
    assert state == kept | latest
    differs = {
        key
        for key, value in latest.items()
        if kept.get(key) != value or site.stored[key][2] in (MISSING, REMOVED)
    }
    assert changed == differs
    assert len(memory) == len(latest)


@pytest.mark.parametrize("in_order", [True, False])
def test_what_was_not_seen_is_missing(in_order):
    site = a_site()
    memory = EntryMemory(MemoryBudget(10**9), site.entries(in_order=in_order))
    for part in site.parts():
        memory.pick(part)
    listed = {key for key, _, _ in site.listed}
    unseen = {key: flags for key, (_, _, flags) in site.stored.items() if key not in listed}
    present = {key for key, flags in unseen.items() if flags != REMOVED}
    assert set(memory.unseen()) == present
    assert set(memory.newly_missing()) == {key for key in present if not unseen[key]}
    assert memory.listed_count == len(listed) + len(present)
    assert memory.missing_count == len([key for key in present if unseen[key] == MISSING])


@pytest.mark.parametrize("most", [0, 10_000, 10**9])
def test_a_document_that_is_new_lists_each_url_once(most):
    keys = [0, *numbers(499)]
    site = Site(listed=[(key, NO_DATE, 1) for key in [*keys, *keys[:20]]])
    memory = EntryMemory(MemoryBudget(most))
    new = repeated = 0
    for part in site.parts():
        picked = memory.pick(part)
        new, repeated = new + len(picked.new), repeated + len(picked.repeated)
    assert (new, repeated, len(memory)) == (500, 20, 500)


@pytest.mark.parametrize("in_order", [True, False])
def test_entries_that_are_stored_as_they_are_listed_are_noted_all_the_same(in_order):
    keys = numbers(500)
    site = Site(dict.fromkeys(keys, (1, 1, 0)), [(key, 1, 1) for key in keys])
    memory = EntryMemory(MemoryBudget(10**9), site.entries(in_order=in_order))
    assert written(site, memory)[1] == set()
    assert (len(memory), len(memory.unseen())) == (500, 0)
    assert [len(memory.pick(part).repeated) for part in site.parts()] == [100] * 5


def test_no_more_entries_are_set_aside_than_the_limit(monkeypatch):
    monkeypatch.setattr(entry_memory, "MAX_SET_ASIDE", 10)
    keys = numbers(50)
    site = Site(dict.fromkeys(keys, (2, 1, 0)), [(key, 1, 1) for key in keys])
    picked = EntryMemory(MemoryBudget(10**9), site.entries(in_order=False)).pick(site.parts()[0])
    assert (len(picked.set_aside), len(picked.changed)) == (10, 40)


@pytest.mark.parametrize("most", [0, 10_000, 10**9])
def test_all_that_was_taken_is_given_back(most):
    budget = MemoryBudget(most)
    site = a_site()
    memories = [EntryMemory(budget, site.entries(in_order=in_order)) for in_order in (True, False)]
    for memory in memories:
        written(site, memory)
    assert budget.held > 0
    for memory in memories:
        memory.release()
    assert budget.held == 0


def bytes_held(stored: int, hashes: list[int], most: int, *, in_order: bool) -> tuple[int, int]:
    """The memory that a document takes in truth, and as it is counted."""
    budget = MemoryBudget(most)
    gc.collect()
    tracemalloc.start()
    entries = StoredEntries(in_order=in_order)
    # Numbers of their own, as they come from the database and from the hash function.
    for first in range(0, stored, 500):
        known = array("q", [key + 1 for key in hashes[first : first + 500]])
        dates = array("q", [1] * len(known))
        entries.extend(known, known, dates, None, bytes(len(known)))
    memory = EntryMemory(budget, entries)
    if 1 < stored < len(hashes):
        # As many new URLs as make an index.
        for key in hashes[:MAX_SEARCHES]:
            memory.pick(listed_columns([key + 2], [1], [1]))
    for first in range(stored, len(hashes), 500):
        new = [key + 1 for key in hashes[first : first + 500]]
        memory.pick(listed_columns(new, new, [1] * len(new)))
    taken, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken, budget.held


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stored", "most", "in_order", "least_bytes", "most_bytes"),
    [
        pytest.param(1, 10**9, False, 60, 120, id="new, within the budget"),
        pytest.param(1, 0, False, 8, 20, id="new, beyond the budget"),
        pytest.param(49_999, 10**9, False, 120, 220, id="stored, within the budget"),
        pytest.param(49_999, 0, False, 30, 60, id="stored, budget spent after they were loaded"),
        pytest.param(50_000, 10**9, False, 20, 40, id="stored, and listed in the same order"),
        pytest.param(50_000, 0, True, 20, 40, id="stored, beyond the budget"),
    ],
)
def test_an_entry_takes_as_many_bytes_as_are_counted(
    stored, most, in_order, least_bytes, most_bytes
):
    hashes = sorted(numbers(50_000))
    taken, counted = bytes_held(stored, hashes, most, in_order=in_order)
    assert least_bytes < taken / len(hashes) < most_bytes
    assert 0.6 < counted / taken < 1.6
