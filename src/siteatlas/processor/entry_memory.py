"""What is kept in memory of a document while it is read: its URLs and what is stored for them.

URLs that are not stored yet are kept in a set, which is fast and takes about 75 bytes per URL. Once
the open documents of the process have spent their budget, a document with 5,000 such URLs or more
continues with arrays, which take about 9 bytes per URL. They are slower, but no document has to
wait for another. The index of the stored entries is chosen by `stored_entries.py`.

Of several listings of a URL the one with the latest date counts, whatever their order, so that a
generator that shuffles its entries does not change the stored ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import ne

from siteatlas.hash_arrays import HashArrays
from siteatlas.processor.fingerprints import NO_TEXT
from siteatlas.processor.lastmod_trust import DateSample
from siteatlas.processor.memory_budget import MemoryBudget
from siteatlas.processor.stored_digests import StoredDigests
from siteatlas.processor.stored_entries import (
    MISSING,
    REMOVED,
    SEEN,
    SET_ASIDE,
    StoredEntries,
)
from siteatlas.storage.statements.url_rows import NO_DATE

SEEN_BYTES = 75
# Arrays grow by a sixteenth.
SEEN_ARRAY_BYTES = 9
# URLs in the set of a document before it uses arrays, which pay off for large ones only.
MIN_ENTRIES = 5_000
# Entries of a document that wait for a later listing of the same URL.
MAX_SET_ASIDE = 1_000


@dataclass(slots=True)
class ListedValues:
    """What is compared of listed entries; `texts` is None if no date has a text to store."""

    hashes: list[int]
    fingerprints: list[int]
    dates: list[int]
    texts: list[int] | None = None


@dataclass(slots=True)
class Picked:
    """The indexes of listed entries that are not simply unchanged.

    `later` ones repeat a URL and may have to replace its previous listing. `set_aside` ones are
    older than what is stored: they count only if no other listing of the URL follows; `settled`
    ones are such listings. `repeated` are all that repeat a URL.
    """

    new: Sequence[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    set_aside: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)


@dataclass(slots=True)
class RecognizedPick:
    """The result of recording recognized entries; `dates` are the dates stored for them.

    `repeated` are the indexes of those that repeat a URL. `settled` are the hashes of URLs whose
    earlier listing was set aside and no longer counts. `replaced`: for one of them, another listing
    has already taken the place of what is stored, although the stored one may be the latest.
    """

    dates: list[int]
    repeated: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    replaced: bool = False


class EntryMemory:
    """The memory of one document, counted in the budget of the process until `release`.

    `dated` counts entries with a date, `moved` those of which nothing but the date has changed.
    Unless the dates are `trusted`, such entries are not picked. `sample` is there while the trust
    is in doubt.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        stored: StoredEntries | None = None,
        *,
        trusted: bool = True,
        sample: DateSample | None = None,
    ) -> None:
        self._budget = budget
        self._stored = stored if stored is not None else StoredEntries()
        self._trusted = trusted
        self.sample = sample
        self._seen: set[int] = set()
        self._more: HashArrays | None = None
        self._seen_stored = 0
        self._set_aside = 0
        self._held = 0
        self.dated = 0
        self.moved = 0
        self._hold(self._stored.size)

    def __len__(self) -> int:
        """How many different URLs were listed so far."""
        return self._seen_stored + len(self._seen) + (len(self._more) if self._more else 0)

    @property
    def listed_count(self) -> int:
        """How many URLs are listed or missing."""
        return len(self) + self._stored.count_unseen()

    @property
    def missing_count(self) -> int:
        """How many URLs were missing before and are still."""
        return self._stored.count_unseen() - self._stored.count_newly_missing()

    def unseen(self) -> array[int]:
        """The hashes of stored URLs that were not listed, including those that are missing."""
        return self._stored.unseen()

    def newly_missing(self) -> array[int]:
        """The hashes of stored URLs that were not listed and are not yet marked as missing."""
        return self._stored.newly_missing()

    def pick(self, listed: ListedValues) -> Picked:
        """Record listed URLs; tell what has to be written of them."""
        self.dated += len(listed.dates) - listed.dates.count(NO_DATE)
        if self.sample is not None:
            self.sample.note(listed.hashes, listed.dates)
        before = len(self._seen) + (len(self._more) if self._more else 0)
        positions: Sequence[int | None] = ()
        if len(self._stored):
            positions = self._find_stored(listed.hashes)
            picked = None if None in positions else self._pick_stored(listed, positions)  # type: ignore[arg-type]
            if picked is not None:
                return picked
        elif self._takes_all(listed.hashes):
            return Picked(new=range(len(listed.hashes)))
        picked = self._pick_one_by_one(listed, positions or [None] * len(listed.hashes))
        each = SEEN_BYTES if self._more is None else SEEN_ARRAY_BYTES
        after = len(self._seen) + (len(self._more) if self._more else 0)
        self._hold((after - before) * each)
        return picked

    @property
    def known_entries(self) -> StoredDigests | None:
        """The digests of the stored entries, if unchanged ones may be recognized by them.

        Not while the dates are in doubt: then each listed date is looked at.
        """
        digests = self._stored.digests
        may_recognize = self._trusted and self.sample is None and digests.any_known
        return digests if may_recognize else None

    def pick_recognized(self, positions: list[int]) -> RecognizedPick:
        """Record URLs that are listed as they are stored; tell which of them were listed before."""
        stored = self._stored
        dates = _at(stored.dates, positions)
        self.dated += len(dates) - dates.count(NO_DATE)
        picked = RecognizedPick(dates)
        if any(_at(stored.flags, positions)):
            self._pick_repeated(positions, picked)
        stored.mark_seen(positions)
        stored.expect_between(positions)
        self._seen_stored += len(positions) - len(picked.repeated)
        return picked

    def _pick_repeated(self, positions: list[int], picked: RecognizedPick) -> None:
        """Note those of recognized URLs that the document has listed before, with other values."""
        flags = self._stored.flags
        for index, position in enumerate(positions):
            if not flags[position]:
                continue
            picked.repeated.append(index)
            if flags[position] & SET_ASIDE:
                flags[position] &= ~SET_ASIDE
                self._set_aside -= 1
                picked.settled.append(self._stored.hash_at(position))
            else:
                picked.replaced = True

    def release(self) -> None:
        """Free the memory of the document."""
        self._budget.free(self._held)
        self._held = 0
        self._stored, self._seen, self._more = StoredEntries(), set(), None

    def _takes_all(self, hashes: Sequence[int]) -> bool:
        """Note URLs that are all new, to the document and to the store; else note none of them."""
        if self._is_over_budget():
            return False
        different = set(hashes)
        if len(different) < len(hashes) or not self._seen.isdisjoint(different):
            return False
        self._seen |= different
        self._hold(len(hashes) * SEEN_BYTES)
        return True

    def _is_over_budget(self) -> bool:
        """Whether new hashes are added to arrays; once a document uses them, it continues to."""
        if self._more is None and self._budget.spent and len(self._seen) >= MIN_ENTRIES:
            self._more = HashArrays()
        return self._more is not None

    def _find_stored(self, hashes: Sequence[int]) -> range | list[int | None]:
        """The positions of URLs among the stored entries, whose index may grow."""
        before = self._stored.size
        found = self._stored.positions(hashes, short_of_memory=self._budget.spent)
        self._hold(self._stored.size - before)
        return found

    def _pick_stored(self, listed: ListedValues, positions: range | list[int]) -> Picked | None:
        """`pick` for entries that are all stored and listed, each once; None if they are not."""
        stored, picked = self._stored, Picked()
        if any(_at(stored.flags, positions)) or not _are_different(positions):
            return None
        differing = self._differing(listed, positions)
        for index in differing:
            self._compare(listed, index, positions[index], picked)
        stored.mark_seen(positions)
        self._seen_stored += len(positions) - len(differing)
        return picked

    def _differing(self, listed: ListedValues, positions: range | list[int]) -> list[int]:
        """The indexes of listed entries that are not stored as they are listed."""
        stored = self._stored
        pairs = [
            (_at(stored.fingerprints, positions), listed.fingerprints),
            (_at(stored.dates, positions), listed.dates),
        ]
        if stored.texts is not None or listed.texts is not None:
            none = [NO_TEXT] * len(positions)
            known = none if stored.texts is None else _at(stored.texts, positions)
            pairs.append((known, none if listed.texts is None else listed.texts))
        found: set[int] = set()
        for before, now in pairs:
            if before != now:
                found.update(compress(count(), map(ne, before, now)))
        return sorted(found)

    def _pick_one_by_one(self, listed: ListedValues, positions: Sequence[int | None]) -> Picked:
        """`pick` for entries of which some are new, changed or repeated."""
        self._is_over_budget()
        picked, new = Picked(), []
        for index, position in enumerate(positions):
            if position is not None:
                self._compare(listed, index, position, picked)
            elif self._remember_url(listed.hashes[index]):
                new.append(index)
            else:
                picked.repeated.append(index)
                picked.later.append(index)
        picked.new = new
        return picked

    def _compare(self, listed: ListedValues, index: int, position: int, picked: Picked) -> None:
        """Compare one listed entry with the stored one."""
        stored = self._stored
        flags = stored.flags[position]
        if flags & SEEN:
            picked.repeated.append(index)
            self._compare_repeated(listed, index, position, picked)
            return
        stored.flags[position] = flags | SEEN
        self._seen_stored += 1
        same = stored.fingerprints[position] == listed.fingerprints[index]
        same_date = self._has_same_date(listed, index, position)
        if same and not same_date:
            self.moved += 1
        if flags & (MISSING | REMOVED):
            picked.changed.append(index)
        elif same and (same_date or not self._trusted):
            return
        elif self._is_older(listed, index, position) and self._set_aside < MAX_SET_ASIDE:
            stored.flags[position] = flags | SEEN | SET_ASIDE
            self._set_aside += 1
            picked.set_aside.append(index)
            return
        else:
            picked.changed.append(index)
        self._accept(listed, index, position)

    def _compare_repeated(
        self, listed: ListedValues, index: int, position: int, picked: Picked
    ) -> None:
        """Compare another listing of a stored URL with the one that counts so far."""
        stored = self._stored
        aside = stored.flags[position] & SET_ASIDE
        if self._is_older(listed, index, position):
            if aside:
                picked.set_aside.append(index)
            return
        if aside:
            stored.flags[position] &= ~SET_ASIDE
            self._set_aside -= 1
            picked.settled.append(index)
        same = stored.fingerprints[position] == listed.fingerprints[index]
        if not same or (self._trusted and stored.dates[position] != listed.dates[index]):
            picked.later.append(index)
            self._accept(listed, index, position)

    def _has_same_date(self, listed: ListedValues, index: int, position: int) -> bool:
        """Whether the date of a listed entry is the stored one, as a time and as a text."""
        texts = self._stored.texts
        stored_text = NO_TEXT if texts is None else texts[position]
        listed_text = NO_TEXT if listed.texts is None else listed.texts[index]
        return self._stored.dates[position] == listed.dates[index] and stored_text == listed_text

    def _is_older(self, listed: ListedValues, index: int, position: int) -> bool:
        """Whether a listed entry has an older date than the stored one; else fingerprints decide.

        That is arbitrary, but does not depend on the order of the entries.
        """
        stored = self._stored
        return (listed.dates[index], listed.fingerprints[index]) < (
            stored.dates[position],
            stored.fingerprints[position],
        )

    def _accept(self, listed: ListedValues, index: int, position: int) -> None:
        """Note the values that the entry will have in the database."""
        text = NO_TEXT if listed.texts is None else listed.texts[index]
        self._stored.accept(position, listed.fingerprints[index], listed.dates[index], text)

    def _remember_url(self, key: int) -> bool:
        """Note that the job has recorded a URL of this document; False if it had before."""
        if key in self._seen:
            return False
        if self._more is not None:
            return self._more.add(key)
        self._seen.add(key)
        return True

    def _hold(self, size: int) -> None:
        """Reserve memory in the budget for the entries of the document."""
        self._held += size
        self._budget.reserve(size)


def _at(values: array[int] | bytearray, positions: range | list[int]) -> list[int]:
    """The values at some positions."""
    if isinstance(positions, range):
        return list(values[positions.start : positions.stop])
    return list(map(values.__getitem__, positions))


def _are_different(positions: range | list[int]) -> bool:
    return isinstance(positions, range) or len(set(positions)) == len(positions)
