"""What is stored of the entries of a document, loaded while it is read.

Entries have positions, in the order in which they were loaded. That is the order in which they were
first listed, unless memory is short, so usually each listed URL is at the position after the last
one. Rows that have changed since follow one another somewhere else. If many URLs are in neither
place, an index is made: a dict, or arrays that take less memory. Entries that have not changed at
all are found by their `digests` instead.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress, pairwise

from siteatlas.hash_arrays import index_of
from siteatlas.processor.fingerprints import text_numbers
from siteatlas.processor.stored_digests import StoredDigests
from siteatlas.storage.statements.urls import IS_MISSING, IS_REMOVED, LoadedEntries

SEEN, MISSING, REMOVED, SET_ASIDE = 1, IS_MISSING, IS_REMOVED, 8
DICT_BYTES = 150
ITEM_BYTES = 8
# Arrays grow by a sixteenth. Per entry: hash, fingerprint, date and flags.
VALUE_BYTES = 3 * ITEM_BYTES + 2
# How many positions before and after recognized entries are searched for changed ones.
ADJACENT = 8
# The database may store some pages of entries in another order than they were listed in.
NEARBY = 2_000
# How many URLs of a document are searched for among all entries before an index is made: the
# database moves single rows into gaps, and few URLs are new.
MAX_SEARCHES = 16
# For `bytes.translate`: 1 for listed entries that were not seen, or for those not missing yet.
UNSEEN = bytes(not flags & (SEEN | REMOVED) for flags in range(256))
NEWLY_MISSING = bytes(not flags & (SEEN | REMOVED | MISSING) for flags in range(256))
WITH_SEEN = bytes(flags | SEEN for flags in range(256))


class SortedIndex:
    """Positions by hash in two arrays, for memory that is short."""

    bytes_per_entry = 2 * ITEM_BYTES

    def __init__(self, hashes: array[int]) -> None:
        order = sorted(range(len(hashes)), key=hashes.__getitem__)
        self._positions = array("q", order)
        self._hashes = array("q", map(hashes.__getitem__, order))

    def get(self, key: int) -> int | None:
        """The position of a hash."""
        index = index_of(self._hashes, key)
        return None if index is None else self._positions[index]


class StoredEntries:
    """The stored entries of one document. `in_order`: loaded in the order of their hashes."""

    def __init__(self, *, in_order: bool = False) -> None:
        self._in_order = in_order
        self._index: dict[int, int] | SortedIndex | None = None
        self._next = 0
        self._next_moved = 0
        self._searches = 0
        self._between: dict[int, int] = {}
        self._hashes = array("q")
        self.digests = StoredDigests()
        self.fingerprints = array("q")
        self.dates = array("q")
        self.texts: array[int] | None = None
        self.flags = bytearray()

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def size(self) -> int:
        """The approximate memory of the entries, in bytes."""
        index = 0
        if self._index is not None:
            is_dict = isinstance(self._index, dict)
            index = DICT_BYTES if is_dict else SortedIndex.bytes_per_entry
        texts = ITEM_BYTES if self.texts is not None else 0
        digests = ITEM_BYTES if len(self.digests) else 0
        return len(self) * (index + VALUE_BYTES + texts + digests)

    def extend(self, page: LoadedEntries) -> None:
        """Add entries; if `in_order`, their hashes are greater than all previous ones."""
        first = len(self)
        self._hashes.extend(page.hashes)
        self.fingerprints.extend(page.fingerprints)
        self.dates.extend(page.dates)
        self.flags.extend(page.flags)
        self.digests.extend(page.digests)
        texts = None if page.texts is None else text_numbers(page.texts)
        if texts is not None and self.texts is None:
            self.texts = array("q", bytes(ITEM_BYTES * first))
        if self.texts is not None:
            self.texts.extend(texts or bytes(len(page.hashes)))

    def expect_between(self, positions: list[int]) -> None:
        """Note entries that were found by their digests: those in between may have changed."""
        others = set(range(positions[0] - ADJACENT, positions[0]))
        for position, following in pairwise(positions):
            if following != position + 1:
                gap = following - position if position < following else ADJACENT
                others.update(range(position + 1, position + min(gap, NEARBY)))
        others.update(range(positions[-1] + 1, positions[-1] + ADJACENT))
        self._next = positions[-1] + 1
        self._between = {self._hashes[n]: n for n in others if 0 <= n < len(self)}

    def hash_at(self, position: int) -> int:
        """The hash of the URL at a position."""
        return self._hashes[position]

    def positions(
        self, hashes: Sequence[int], *, short_of_memory: bool = False
    ) -> range | list[int | None]:
        """The positions of URLs; None for those that are not stored.

        A range if they follow each other as they were loaded.
        """
        first, end = self._next, self._next + len(hashes)
        if self._hashes[first:end] == array("q", hashes):
            self._next = end
            return range(first, end)
        return self._look_up(hashes, short_of_memory=short_of_memory)

    def _look_up(self, hashes: Sequence[int], *, short_of_memory: bool) -> list[int | None]:
        """The positions of URLs, each behind the one before or somewhere else."""
        stored, end = self._hashes, len(self)
        found: list[int | None] = []
        for key in hashes:
            position: int | None = self._next
            if self._next < end and stored[self._next] == key:
                self._next += 1
            elif self._next_moved < end and stored[self._next_moved] == key:
                position = self._next_moved
                self._next_moved += 1
            else:
                position = self._between.get(key)
                if position is None:
                    position = self._find(key, short_of_memory=short_of_memory)
                if position is not None:
                    self._next_moved = position + 1
            found.append(position)
        return found

    def _find(self, key: int, *, short_of_memory: bool) -> int | None:
        """The position of a URL that is not behind the one before."""
        if self._in_order:
            return index_of(self._hashes, key)
        if self._index is None:
            first, end = max(0, self._next - NEARBY), self._next + NEARBY
            if self._searches < MAX_SEARCHES:
                first, end = 0, len(self)
                self._searches += 1
            try:
                return self._hashes.index(key, first, end)
            except ValueError:
                if self._searches < MAX_SEARCHES:
                    return None
                self._index = self._make_index(short_of_memory=short_of_memory)
        return self._index.get(key)

    def _make_index(self, *, short_of_memory: bool) -> dict[int, int] | SortedIndex:
        if short_of_memory:
            return SortedIndex(self._hashes)
        return dict(zip(self._hashes, range(len(self)), strict=True))

    def accept(self, position: int, fingerprint: int, date: int, text: int) -> None:
        """Replace the values of an entry by those that will be stored."""
        self.fingerprints[position] = fingerprint
        self.dates[position] = date
        if self.texts is not None:
            self.texts[position] = text

    def mark_seen(self, positions: range | list[int]) -> None:
        """Note that entries were seen."""
        if isinstance(positions, range):
            run = slice(positions.start, positions.stop)
            self.flags[run] = self.flags[run].translate(WITH_SEEN)
            return
        for position in positions:
            self.flags[position] |= SEEN

    def count_unseen(self) -> int:
        """How many listed entries were not seen."""
        return self.flags.translate(UNSEEN).count(1)

    def count_newly_missing(self) -> int:
        """How many of them were not missing before."""
        return self.flags.translate(NEWLY_MISSING).count(1)

    def unseen(self) -> array[int]:
        """The hashes of listed entries that were not seen."""
        return self._selected(UNSEEN)

    def newly_missing(self) -> array[int]:
        """The hashes of listed entries that were not seen and were not missing before."""
        return self._selected(NEWLY_MISSING)

    def _selected(self, table: bytes) -> array[int]:
        return array("q", compress(self._hashes, self.flags.translate(table)))
