"""What is kept in memory of a document while it is read: its URLs and what is stored for them.

Sets and dicts are fast and take about 75 and 150 bytes per URL. They are used as long as all open
documents of the process together fit the budget; beyond that, arrays are used, with about 9 and 16
bytes per URL. They are slower, but no document has to wait for another.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from siteatlas.hash_arrays import HashArrays, index_of
from siteatlas.processor.memory_budget import MemoryBudget

SEEN_BYTES = 75
STORED_BYTES = 150
ITEM_BYTES = 8
# Arrays grow by a sixteenth.
SEEN_ARRAY_BYTES = ITEM_BYTES + 1
STORED_ARRAY_BYTES = 2 * ITEM_BYTES
# Listings of a document before it uses arrays, which are worth their price for large ones only.
MIN_ENTRIES = 5_000
UNKNOWN = object()

Picked = tuple[list[int], list[int], list[int]]


class StoredArrays:
    """Fingerprints by hash in two arrays, sorted by hash; `gone` URLs have none."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._fingerprints = array("q")
        self._gone: set[int] = set()

    def __len__(self) -> int:
        return len(self._hashes)

    def extend(self, hashes: Sequence[int], fingerprints: Sequence[int | None]) -> None:
        """Add URLs whose hashes are greater than all previous ones."""
        self._hashes.extend(hashes)
        self._fingerprints.extend([value or 0 for value in fingerprints])
        if None in fingerprints:
            pairs = zip(hashes, fingerprints, strict=True)
            self._gone.update(key for key, value in pairs if value is None)

    def get(self, key: int, otherwise: object) -> object:
        """The fingerprint of a URL, None if it is gone."""
        index = index_of(self._hashes, key)
        if index is None:
            return otherwise
        return None if key in self._gone else self._fingerprints[index]


Stored = Mapping[int, int | None] | StoredArrays


class EntryMemory:
    """The memory of one document, counted in the budget of the process until `release`."""

    def __init__(self, budget: MemoryBudget, stored: Stored) -> None:
        self._budget = budget
        self._stored = stored
        self._seen: set[int] = set()
        self._more: HashArrays | None = None
        self._held = 0
        quick = not isinstance(stored, StoredArrays)
        self._hold(len(stored) * (STORED_BYTES if quick else STORED_ARRAY_BYTES))

    def __len__(self) -> int:
        """How many different URLs were listed so far."""
        return len(self._seen) + (len(self._more) if self._more is not None else 0)

    def takes_all(self, hashes: Sequence[int]) -> bool:
        """Note URLs that are all new, to the document and to the store; else note none of them."""
        if self._stored or self._is_over_budget():
            return False
        if not self._has_no_repeats(hashes):
            return False
        self._seen.update(hashes)
        self._hold(len(hashes) * SEEN_BYTES)
        return True

    def pick(self, hashes: Sequence[int], fingerprints: Sequence[int]) -> Picked:
        """Record listed URLs; return the indexes of the new, the changed and the repeated ones."""
        before = len(self)
        if self._is_over_budget() or isinstance(self._stored, StoredArrays):
            picked = self._pick_carefully(hashes, fingerprints)
        else:
            picked = self._pick_quickly(self._stored, hashes, fingerprints)
        each = SEEN_BYTES if self._more is None else SEEN_ARRAY_BYTES
        self._hold((len(self) - before) * each)
        return picked

    def release(self) -> None:
        """Free the memory of the document."""
        self._budget.free(self._held)
        self._held = 0
        self._stored, self._seen, self._more = {}, set(), None

    def _is_over_budget(self) -> bool:
        """Whether new hashes are added to arrays; once a document uses them, it continues to."""
        if self._more is None and self._budget.spent and len(self._seen) >= MIN_ENTRIES:
            self._more = HashArrays()
        return self._more is not None

    def _pick_quickly(
        self,
        stored: Mapping[int, int | None],
        hashes: Sequence[int],
        fingerprints: Sequence[int],
    ) -> Picked:
        """One loop without helper functions, because it runs once per listed URL."""
        if self._are_unchanged(stored, hashes, fingerprints):
            return [], [], []
        fresh: list[int] = []
        different: list[int] = []
        repeated: list[int] = []
        seen = self._seen
        for index, key in enumerate(hashes):
            if key in seen:
                repeated.append(index)
                continue
            seen.add(key)
            if key not in stored:
                fresh.append(index)
            elif stored[key] != fingerprints[index]:
                different.append(index)
        return fresh, different, repeated

    def _are_unchanged(
        self,
        stored: Mapping[int, int | None],
        hashes: Sequence[int],
        fingerprints: Sequence[int],
    ) -> bool:
        """Note URLs that are all stored as they are listed, each once; else note none of them."""
        if list(map(stored.get, hashes)) != fingerprints or not self._has_no_repeats(hashes):
            return False
        self._seen.update(hashes)
        return True

    def _has_no_repeats(self, hashes: Sequence[int]) -> bool:
        """Whether the job has recorded none of these URLs of the document, and none is repeated."""
        return self._seen.isdisjoint(hashes) and len(set(hashes)) == len(hashes)

    def _pick_carefully(self, hashes: Sequence[int], fingerprints: Sequence[int]) -> Picked:
        """`pick` for documents whose hashes or fingerprints are held in arrays."""
        fresh: list[int] = []
        different: list[int] = []
        repeated: list[int] = []
        remember_url, stored = self._remember_url, self._stored
        for index, key in enumerate(hashes):
            if not remember_url(key):
                repeated.append(index)
                continue
            known = stored.get(key, UNKNOWN) if stored else UNKNOWN
            if known is UNKNOWN:
                fresh.append(index)
            elif known != fingerprints[index]:
                different.append(index)
        return fresh, different, repeated

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
