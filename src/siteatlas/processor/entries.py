"""What is kept in memory of a document's entries while it is read.

`EntryMemory` compares each listed URL with the `StoredEntries` of the document and tells what has
to be written. Of several listings of a URL the one with the latest date counts, whatever their
order, so that a generator that shuffles its entries does not change the stored ones. `UrlBreakdown`
counts the entries by section and month. `MemoryBudget` is what all documents of a process share.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import compress, count
from operator import ne
from typing import Any

from siteatlas.catalog.url_copy import MICROSECOND, NO_DATE, POSTGRES_EPOCH, UrlRows
from siteatlas.catalog.urls import (
    MISSING,
    NO_TEXT,
    REMOVED,
    SEEN,
    SET_ASIDE,
    StoredEntries,
    text_number,
    text_numbers,
)
from siteatlas.hash_arrays import HashArrays

# Raised when the same document would yield other fingerprints or other entries: the next read of
# each document is then silent instead of reporting every URL as changed.
READ_VERSION = 1
SEEN_BYTES = 75

# URLs in the set of a document before it uses arrays, which pay off for large ones only.
MIN_ENTRIES = 5_000
# Entries of a document that wait for a later listing of the same URL.
MAX_SET_ASIDE = 1_000
SAMPLE_SIZE = 64

ROOT = "/"
# Of sections whose names are too long to be kept.
UNNAMED = ""
# Sections of a document beyond which their sizes are estimated.
MANY_SECTIONS = 500
SAMPLED = 16
# More names are not held while a document is read.
MAX_NAMES = 5_000
DAY = timedelta(days=1) // MICROSECOND


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


class EntryMemory:
    """The memory of one document, counted in the budget of the process until `release`.

    Its length is the number of different URLs that were listed so far.

    Once the open documents of the process have spent their budget, URLs that are not stored yet are
    kept in arrays instead of a set, with 9 bytes per URL instead of 75. They are slower, but no
    document has to wait for another.

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

    def pick(self, listed: UrlRows) -> Picked:
        """Record listed URLs; tell what has to be written of them."""
        self.dated += len(listed.dates) - listed.dates.count(NO_DATE)
        if self.sample is not None:
            self.sample.note(listed.url_hash, listed.dates)
        before = len(self._seen) + (len(self._more) if self._more else 0)
        positions: Sequence[int | None] = ()
        if len(self._stored):
            positions = self._find_stored(listed.url_hash)
            picked = None if None in positions else self._pick_stored(listed, positions)  # type: ignore[arg-type]
            if picked is not None:
                return picked
        elif self._takes_all(listed.url_hash):
            return Picked(new=range(len(listed.url_hash)))
        picked = self._pick_one_by_one(listed, positions or [None] * len(listed.url_hash))
        # Arrays grow by a sixteenth.
        each = SEEN_BYTES if self._more is None else 9
        after = len(self._seen) + (len(self._more) if self._more else 0)
        self._hold((after - before) * each)
        return picked

    def release(self) -> None:
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
        before = self._stored.size
        found = self._stored.positions(hashes, short_of_memory=self._budget.spent)
        self._hold(self._stored.size - before)
        return found

    def _pick_stored(self, listed: UrlRows, positions: range | list[int]) -> Picked | None:
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

    def _differing(self, listed: UrlRows, positions: range | list[int]) -> list[int]:
        stored = self._stored
        pairs = [
            (_at(stored.fingerprints, positions), listed.fingerprint),
            (_at(stored.dates, positions), listed.dates),
        ]
        texts = text_numbers(listed.lastmod_text)
        if stored.texts is not None or texts is not None:
            none = [NO_TEXT] * len(positions)
            known = none if stored.texts is None else _at(stored.texts, positions)
            pairs.append((known, texts or none))
        found: set[int] = set()
        for before, now in pairs:
            if before != now:
                found.update(compress(count(), map(ne, before, now)))
        return sorted(found)

    def _pick_one_by_one(self, listed: UrlRows, positions: Sequence[int | None]) -> Picked:
        self._is_over_budget()
        picked, new = Picked(), []
        for index, position in enumerate(positions):
            if position is not None:
                self._compare(listed, index, position, picked)
            elif self._remember_url(listed.url_hash[index]):
                new.append(index)
            else:
                picked.repeated.append(index)
                picked.later.append(index)
        picked.new = new
        return picked

    def _compare(self, listed: UrlRows, index: int, position: int, picked: Picked) -> None:
        stored = self._stored
        flags = stored.flags[position]
        if flags & SEEN:
            picked.repeated.append(index)
            self._compare_repeated(listed, index, position, picked)
            return
        stored.flags[position] = flags | SEEN
        self._seen_stored += 1
        same = stored.fingerprints[position] == listed.fingerprint[index]
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

    def _compare_repeated(self, listed: UrlRows, index: int, position: int, picked: Picked) -> None:
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
        same = stored.fingerprints[position] == listed.fingerprint[index]
        if not same or (self._trusted and stored.dates[position] != listed.dates[index]):
            picked.later.append(index)
            self._accept(listed, index, position)

    def _has_same_date(self, listed: UrlRows, index: int, position: int) -> bool:
        texts = self._stored.texts
        stored_text = NO_TEXT if texts is None else texts[position]
        listed_text = text_number(listed.lastmod_text[index])
        return self._stored.dates[position] == listed.dates[index] and stored_text == listed_text

    def _is_older(self, listed: UrlRows, index: int, position: int) -> bool:
        """Whether a listed entry has an older date than the stored one; else fingerprints decide.

        That is arbitrary, but does not depend on the order of the entries.
        """
        stored = self._stored
        return (listed.dates[index], listed.fingerprint[index]) < (
            stored.dates[position],
            stored.fingerprints[position],
        )

    def _accept(self, listed: UrlRows, index: int, position: int) -> None:
        text = text_number(listed.lastmod_text[index])
        self._stored.accept(position, listed.fingerprint[index], listed.dates[index], text)

    def _remember_url(self, key: int) -> bool:
        if key in self._seen:
            return False
        if self._more is not None:
            return self._more.add(key)
        self._seen.add(key)
        return True

    def _hold(self, size: int) -> None:
        self._held += size
        self._budget.reserve(size)


def _at(values: array[int] | bytearray, positions: range | list[int]) -> list[int]:
    if isinstance(positions, range):
        return list(values[positions.start : positions.stop])
    return list(map(values.__getitem__, positions))


def _are_different(positions: range | list[int]) -> bool:
    return isinstance(positions, range) or len(set(positions)) == len(positions)


class DateSample:
    """The dates of some entries of a document, compared with those of the read before.

    Dates that are not believed are not stored when they move, so these tell whether they still do.
    """

    def __init__(self, before: Mapping[str, int] | None = None) -> None:
        self._before = {int(key): date for key, date in (before or {}).items()}
        self._seen: dict[int, int] = {}
        self._others: dict[int, int] = {}

    def note(self, hashes: Sequence[int], dates: Sequence[int]) -> None:
        """Note listed entries: those of the read before, and others as long as there is room."""
        for key, date in zip(hashes, dates, strict=True):
            if date == NO_DATE:
                continue
            if key in self._before:
                self._seen[key] = date
            elif len(self._others) < SAMPLE_SIZE:
                self._others[key] = date

    @property
    def compared(self) -> int:
        """How many entries were in the sample of the read before."""
        return len(self._seen)

    @property
    def moved(self) -> int:
        """How many of these have another date now."""
        return sum(1 for key, date in self._seen.items() if self._before[key] != date)

    def stored(self) -> dict[str, int]:
        """The sample for the next read."""
        pairs = [*self._seen.items(), *self._others.items()][:SAMPLE_SIZE]
        return {str(key): date for key, date in pairs}


class MemoryBudget:
    """A shared count of bytes. Its users decide what to do when it is spent."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = 0

    @property
    def spent(self) -> bool:
        return self._held >= self._max_bytes

    @property
    def held(self) -> int:
        return self._held

    def reserve(self, size: int) -> None:
        self._held += size

    def free(self, size: int) -> None:
        self._held -= size


class EntryMemoryBudget(MemoryBudget):
    """The budget of unwritten entries: when it is spent, each recorder writes its rows.

    `documents` is the budget of the stored entries of documents being read: when it is spent,
    further documents use a form that takes less memory.
    """

    def __init__(
        self, max_bytes: int = 6 * 1024 * 1024, max_document_bytes: int = 8 * 1024 * 1024
    ) -> None:
        super().__init__(max_bytes)
        self.documents = MemoryBudget(max_document_bytes)


class UrlBreakdown:
    """Counts the entries of a document by section and by the month of their date.

    The section of a URL is the first segment of its path, such as `/blog/`, if anything follows it;
    all other URLs are in the section `/`. This runs for every listed URL: a column is sorted, and
    each section or month is then found as a run. Of a document with more than `MANY_SECTIONS`,
    which gain nothing from that, one URL of sixteen is looked at (decision 0013).
    """

    def __init__(self) -> None:
        self._sections = BoundedCounts()
        self._months = BoundedCounts()
        self._undated = 0

    def add(
        self, urls: Sequence[str], dates: Sequence[int], repeated: Collection[int] = ()
    ) -> None:
        """Count listed entries, without those at the indexes that repeat a URL."""
        if repeated:
            indexes = set(repeated)
            kept = [index not in indexes for index in range(len(urls))]
            urls, dates = list(compress(urls, kept)), list(compress(dates, kept))
        self._add_sections(urls)
        months, undated = count_months(dates)
        self._months.add(months)
        self._undated += undated

    def stored(self) -> dict[str, Any]:
        """The counts as they are stored with the document; empty if it listed nothing."""
        sections, other = self._sections.largest(200)
        months, other_months = self._months.largest(240)
        if not (sections or other):
            return {}
        return {
            "sections": sections,
            "other": other,
            "months": months,
            "other_months": other_months,
            "undated": self._undated,
        }

    def _add_sections(self, urls: Sequence[str]) -> None:
        if len(self._sections) < MANY_SECTIONS:
            self._sections.add(count_sections(urls))
            return
        sample = count_sections(urls[SAMPLED - 1 :: SAMPLED])
        estimated = {section: count * SAMPLED for section, count in sample.items()}
        self._sections.add(estimated, rest=len(urls) % SAMPLED)


class BoundedCounts:
    """Counts by name. Beyond `MAX_NAMES`, the smallest ones are counted together."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rest = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, counts: Mapping[str, int], *, rest: int = 0) -> None:
        """Add counts to those so far; `rest` has no name."""
        held = self._counts
        for name, number in counts.items():
            held[name] = held.get(name, 0) + number
        self._rest += rest + held.pop(UNNAMED, 0)
        if len(held) > MAX_NAMES:
            self._counts, self._rest = self.largest(MAX_NAMES // 2)

    def largest(self, limit: int) -> tuple[dict[str, int], int]:
        """The largest counts, of equal ones the first by name, and the sum of all others."""
        items = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return dict(items[:limit]), self._rest + sum(count for _, count in items[limit:])


def count_sections(urls: Sequence[str]) -> dict[str, int]:
    """The number of URLs by section; `UNNAMED` has those of sections with long names."""
    ordered = sorted(urls)
    start = _path_start(ordered[0]) if ordered else 0
    if not start or not ordered[-1].startswith(ordered[0][:start]):
        return Counter(map(section_of, urls))
    counts: dict[str, int] = {}
    first = at_root = 0
    while first < len(ordered):
        url = ordered[first]
        # The last character is not searched: nothing follows it.
        end = url.find("/", start, -1)
        if end < 0:
            at_root += 1
            first += 1
            continue
        # The character behind the slash: the end of all URLs that begin with a section.
        behind = bisect_left(ordered, url[:end] + "0", first)
        name = _section_name(url[start : end + 1])
        counts[name] = counts.get(name, 0) + behind - first
        first = behind
    if at_root:
        counts[ROOT] = counts.get(ROOT, 0) + at_root
    return counts


def section_of(url: str) -> str:
    start = _path_start(url) or len(url)
    return _section_name(url[start : url.find("/", start, -1) + 1])


def _path_start(url: str) -> int:
    return url.find("/", url.find("://") + 3) + 1


def _section_name(text: str) -> str:
    """The section for the text from the first slash of a URL's path to the second one.

    That one may belong to a query or a fragment.
    """
    if len(text) <= 1 or "?" in text or "#" in text:
        return ROOT
    return f"/{text}" if len(text) < 100 else UNNAMED


def count_months(dates: Sequence[int]) -> tuple[dict[str, int], int]:
    """The number of dates by month in UTC, such as `2026-11`, and of entries without a date."""
    ordered = sorted(dates)
    counts: dict[str, int] = {}
    first = undated = bisect_right(ordered, NO_DATE)
    while first < len(ordered):
        name, end = _month_of_day(ordered[first] // DAY)
        behind = bisect_left(ordered, end, first)
        counts[name] = behind - first
        first = behind
    return counts, undated


@lru_cache(1_000)
def _month_of_day(day: int) -> tuple[str, int]:
    moment = POSTGRES_EPOCH + timedelta(days=day)
    days = monthrange(moment.year, moment.month)[1]
    return f"{moment.year:04}-{moment.month:02}", (day - moment.day + 1 + days) * DAY
