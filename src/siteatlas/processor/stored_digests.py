"""Finds stored entries of a document by the digests of their text.

Rows are loaded in the order in which the database has them. That is the order in which the entries
were listed, except for rows that have changed since: those follow one another somewhere else. So
there are two places at which the next entry is expected.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from operator import eq

from siteatlas.storage.statements.url_rows import NO_DIGEST

ITEM_BYTES = 8
# How many positions from each of the two places on are searched for an entry.
AHEAD = 64
# If at most one entry of so many is elsewhere, the others are where they are expected.
ENTRIES_PER_MISS = 8
# The misses at which all entries are searched, since many may have left the document. Not more
# often, because an entry that has changed is not found anywhere.
MISSES_BEFORE_WIDE_SEARCH = frozenset((4, 32, 256))
# Misses in a row after which a document has nothing in common with what is stored.
MAX_MISSES = 2_048


class StoredDigests:
    """The digests of stored entries by position, each of which is found at most once."""

    def __init__(self) -> None:
        self._digests = array("q")
        # Positions at which the next entry is expected, first of all at the first of them.
        self._expected = [0, 0]
        self._misses = 0
        self._misses_in_a_row = 0

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def any_known(self) -> bool:
        """Whether any entry can be found."""
        return any(self._digests)

    def extend(self, digests: Iterable[int]) -> None:
        """Add the digests of further entries; NO_DIGEST for those that cannot be found."""
        self._digests.extend(digests)

    def find(self, digests: Sequence[int]) -> list[int | None]:
        """The positions of entries; None for those that are not stored like this."""
        if self._misses_in_a_row > MAX_MISSES:
            return [None] * len(digests)
        for _ in self._expected:
            found = self._find_run(digests)
            if found is not None:
                return found
            self._expected.reverse()
        return [self._find_one(digest) for digest in digests]

    def _find_run(self, digests: Sequence[int]) -> list[int | None] | None:
        """The positions if most of the entries follow one another as expected; else None."""
        first, end = self._expected[0], self._expected[0] + len(digests)
        known = self._digests[first:end]
        if len(known) < len(digests) or known[-1] != digests[-1]:
            return None
        same = list(map(eq, known, digests))
        misses = [index for index, is_same in enumerate(same) if not is_same]
        if len(misses) > len(same) // ENTRIES_PER_MISS:
            return None
        self._digests[first:end] = array("q", bytes(ITEM_BYTES * len(same)))
        self._expected[0] = end
        self._misses_in_a_row = 0
        found: list[int | None] = [*range(first, end)]
        for index in misses:
            found[index] = self._find_moved(digests[index])
        return found

    def _find_one(self, digest: int) -> int | None:
        """The position of one entry: where it is expected, or somewhere else."""
        for place in range(len(self._expected)):
            position = self._find_near(digest, place)
            if position is not None:
                self._misses_in_a_row = 0
                return position
        return self._find_anywhere(digest)

    def _find_moved(self, digest: int) -> int | None:
        """The position of an entry that is not at the first of the places where it is expected."""
        position = self._find_near(digest, 1)
        return self._find_anywhere(digest) if position is None else position

    def _find_near(self, digest: int, place: int) -> int | None:
        """The position of an entry at one of the places where it is expected, or just after."""
        first = self._expected[place]
        return self._take(digest, first, first + AHEAD, place)

    def _find_anywhere(self, digest: int) -> int | None:
        """The position of an entry that is elsewhere; all entries are searched only rarely."""
        self._misses += 1
        self._misses_in_a_row += 1
        if self._misses not in MISSES_BEFORE_WIDE_SEARCH:
            return None
        return self._take(digest, 0, len(self), 1)

    def _take(self, digest: int, first: int, end: int, place: int) -> int | None:
        """Search for an entry between two positions; the next one is then expected after it."""
        try:
            position = self._digests.index(digest, first, end)
        except ValueError:
            return None
        self._digests[position] = NO_DIGEST
        self._expected[place] = position + 1
        return position
