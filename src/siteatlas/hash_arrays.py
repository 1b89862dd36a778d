"""64-bit hashes: as PostgreSQL stores them, in ranges, and in sets of some 9 bytes per number."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

# For some ten thousand numbers; more arrays are for more of them.
FEW_ARRAYS = 16
MANY_ARRAYS = 256


def index_of(numbers: array[int], number: int) -> int | None:
    """The index of a number in a sorted array; None if it is not there."""
    index = bisect_left(numbers, number)
    return index if index < len(numbers) and numbers[index] == number else None


class HashArrays:
    """A set of signed 64-bit numbers in sorted arrays, so many that adding one moves few others.

    `arrays` is a power of two.
    """

    def __init__(self, arrays: int = MANY_ARRAYS) -> None:
        self._mask = arrays - 1
        self._arrays = [array("q") for _ in range(arrays)]

    def __len__(self) -> int:
        return sum(map(len, self._arrays))

    def __contains__(self, key: int) -> bool:
        return index_of(self._arrays[key & self._mask], key) is not None

    def add(self, key: int) -> bool:
        """Add a number; False when it is there already."""
        numbers = self._arrays[key & self._mask]
        place = bisect_left(numbers, key)
        if place < len(numbers) and numbers[place] == key:
            return False
        numbers.insert(place, key)
        return True

    def discard(self, key: int) -> None:
        """Remove a number if it is there."""
        numbers = self._arrays[key & self._mask]
        index = index_of(numbers, key)
        if index is not None:
            del numbers[index]


def signed64(value: int) -> int:
    """An unsigned 64-bit number as PostgreSQL's signed bigint."""
    return value - TWO_TO_64 if value >= SIGN_BIT else value


def hash_ranges(parts: int) -> Iterator[tuple[int, int]]:
    """All hashes in ranges of the same length, each with its first and its last hash."""
    lowest, highest = -(2**63), 2**63 - 1
    length = (highest - lowest) // parts + 1
    for first in range(lowest, highest + 1, length):
        yield first, min(first + length - 1, highest)


SIGN_BIT = 1 << 63


TWO_TO_64 = 1 << 64
