"""What is held of an open document: exact in either form, counted, and small when it must be."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from random import Random

import pytest

from siteatlas.processor import entry_memory
from siteatlas.processor.entry_memory import EntryMemory, Stored, StoredArrays
from siteatlas.processor.memory_budget import MemoryBudget


@pytest.fixture(autouse=True)
def _small_documents_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_memory, "MIN_ENTRIES", 100)


def numbers(count: int, seed: int = 7) -> list[int]:
    random = Random(seed)
    return [random.randint(-(2**63), 2**63 - 1) for _ in range(count)]


def arrays_of(stored: dict[int, int | None]) -> StoredArrays:
    arrays = StoredArrays()
    ordered = sorted(stored.items())
    for first in range(0, len(ordered), 100):
        part = ordered[first : first + 100]
        arrays.extend([key for key, _ in part], [value for _, value in part])
    return arrays


def read(memory: EntryMemory, hashes: Sequence[int], prints: Sequence[int]) -> list[list[int]]:
    """What becomes of each listing, taken in as the recorder does it, 50 at a time."""
    found: list[list[int]] = [[], [], []]
    for first in range(0, len(hashes), 50):
        part = hashes[first : first + 50]
        if memory.takes_all(part):
            found[0] += range(first, first + len(part))
            continue
        for kind, places in zip(found, memory.pick(part, prints[first : first + 50]), strict=True):
            kind += [first + place for place in places]
    return found


def listed_and_stored() -> tuple[list[int], list[int], dict[int, int | None]]:
    """Listings of which some are repeated, stored, changed or gone."""
    random = Random(3)
    keys = numbers(600)
    hashes = keys + random.choices(keys, k=200)
    random.shuffle(hashes)
    prints = [random.randint(0, 1) for _ in hashes]
    stored: dict[int, int | None] = {key: random.choice([0, 1, None]) for key in keys[:300]}
    return hashes, prints, stored


@pytest.mark.parametrize("most", [0, 10_000, 20_000, 10**9])
@pytest.mark.parametrize("form", [dict, arrays_of])
def test_new_changed_and_repeated_listings_are_told_apart_in_every_form(most, form):
    hashes, prints, stored = listed_and_stored()
    expected: list[list[int]] = [[], [], []]
    seen: set[int] = set()
    for place, (key, value) in enumerate(zip(hashes, prints, strict=True)):
        if key in seen:
            expected[2].append(place)
        elif key not in stored:
            expected[0].append(place)
        elif stored[key] != value:
            expected[1].append(place)
        seen.add(key)
    memory = EntryMemory(MemoryBudget(most), form(stored))
    assert read(memory, hashes, prints) == expected
    assert len(memory) == len(seen)


@pytest.mark.parametrize("most", [0, 10_000, 10**9])
def test_a_document_that_is_new_lists_each_url_once(most):
    keys = [0, *numbers(499)]
    hashes = keys + keys[:20]
    memory = EntryMemory(MemoryBudget(most), {})
    found = read(memory, hashes, [1] * len(hashes))
    assert found == [list(range(500)), [], list(range(500, 520))]


@pytest.mark.parametrize("most", [0, 10**9])
def test_listings_that_are_stored_as_they_are_listed_are_noted_all_the_same(most):
    keys = numbers(500)
    memory = EntryMemory(MemoryBudget(most), dict.fromkeys(keys, 1))
    assert read(memory, keys, [1] * 500) == [[], [], []]
    assert len(memory) == 500
    assert read(memory, keys, [1] * 500) == [[], [], list(range(500))]
    assert memory.pick([2**62, 2**62], [1, 1]) == ([0], [], [1])


@pytest.mark.parametrize("most", [0, 10_000, 10**9])
def test_all_that_was_taken_is_given_back(most):
    budget = MemoryBudget(most)
    hashes, prints, stored = listed_and_stored()
    memories = [EntryMemory(budget, stored), EntryMemory(budget, arrays_of(stored))]
    for memory in memories:
        read(memory, hashes, prints)
    assert budget.held > 0
    for memory in memories:
        memory.release()
    assert budget.held == 0


def bytes_held(stored: Stored, hashes: list[int], most: int) -> tuple[int, int]:
    """The memory that a document takes in truth, and as it is counted."""
    budget = MemoryBudget(most)
    gc.collect()
    tracemalloc.start()
    memory = EntryMemory(budget, stored)
    for first in range(0, len(hashes), 500):
        # Numbers of their own, as they come from the hash function.
        part = [key + 1 for key in hashes[first : first + 500]]
        if not memory.takes_all(part):
            memory.pick(part, part)
    taken, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken, budget.held


@pytest.mark.slow
def test_beyond_the_budget_a_listing_takes_few_bytes_and_the_count_is_about_right():
    hashes = numbers(50_000)
    quick, counted_quick = bytes_held({}, hashes, 10**9)
    small, counted_small = bytes_held({}, hashes, 0)
    assert quick > 60 * len(hashes)
    assert small < 20 * len(hashes)
    assert 0.6 < counted_quick / quick < 1.6
    assert 0.6 < counted_small / small < 1.6
