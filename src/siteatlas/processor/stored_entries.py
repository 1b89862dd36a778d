"""What is stored of the entries of a document, loaded while it is read.

Entries have positions, in the order in which they were loaded. The values are in arrays; only how
a position is found differs: by a dict, at about 150 bytes per URL, or by bisection in a sorted
array, at 8 bytes. Which one is used is for `entry_memory` to decide.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress

from siteatlas.hash_arrays import index_of
from siteatlas.processor.fingerprints import text_numbers
from siteatlas.storage.statements.urls import IS_MISSING, IS_REMOVED, LoadedEntries

SEEN, MISSING, REMOVED, SET_ASIDE = 1, IS_MISSING, IS_REMOVED, 8
DICT_BYTES = 150
ITEM_BYTES = 8
# Arrays grow by a sixteenth. Per entry: fingerprint, date and flags.
VALUE_BYTES = 2 * ITEM_BYTES + 2
# For `bytes.translate`: 1 for listed entries that were not seen, or for those not missing yet.
UNSEEN = bytes(not flags & (SEEN | REMOVED) for flags in range(256))
NEWLY_MISSING = bytes(not flags & (SEEN | REMOVED | MISSING) for flags in range(256))


class StoredEntries:
    """The stored entries of one document. `quick`: with a dict."""

    def __init__(self, *, quick: bool = True) -> None:
        self._index: dict[int, int] | None = {} if quick else None
        self._hashes = array("q")
        self.fingerprints = array("q")
        self.dates = array("q")
        self.texts: array[int] | None = None
        self.flags = bytearray()

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def is_quick(self) -> bool:
        """Whether positions are found by a dict."""
        return self._index is not None

    @property
    def size(self) -> int:
        """The approximate memory of the entries, in bytes."""
        index = DICT_BYTES if self.is_quick else ITEM_BYTES
        texts = ITEM_BYTES if self.texts is not None else 0
        return len(self) * (index + VALUE_BYTES + texts)

    def extend(self, page: LoadedEntries) -> None:
        """Add entries; their hashes are greater than all previous ones unless `quick`."""
        first = len(self)
        if self._index is None:
            self._hashes.extend(page.hashes)
        else:
            self._index.update({key: first + n for n, key in enumerate(page.hashes)})
        self.fingerprints.extend(page.fingerprints)
        self.dates.extend(page.dates)
        self.flags.extend(page.flags)
        texts = text_numbers(page.texts)
        if texts is not None and self.texts is None:
            self.texts = array("q", bytes(ITEM_BYTES * first))
        if self.texts is not None:
            self.texts.extend(texts or bytes(len(page.hashes)))

    def positions(self, hashes: Sequence[int]) -> list[int | None]:
        """The positions of URLs; None for those that are not stored."""
        if self._index is not None:
            return list(map(self._index.get, hashes))
        return [index_of(self._hashes, key) for key in hashes]

    def accept(self, position: int, fingerprint: int, date: int, text: int) -> None:
        """Replace the values of an entry by those that will be stored."""
        self.fingerprints[position] = fingerprint
        self.dates[position] = date
        if self.texts is not None:
            self.texts[position] = text

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
        keys: Iterable[int] = self._hashes if self._index is None else self._index
        return array("q", compress(keys, self.flags.translate(table)))
