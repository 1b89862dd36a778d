"""The ids of documents of which nothing else must be known, by the hashes of their URLs.

A scan may list thousands of documents and take hours to read them. Of each one that waits or has
been read, 25 bytes are kept here; `documents.py` keeps those in work.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from uuid import UUID

ARRAYS = 16
LOW_BITS = (1 << 64) - 1


class _Rows:
    """Columns sorted by hash: hash, both halves of the id, and whether the document is fresh."""

    def __init__(self) -> None:
        self.hashes = array("q")
        self.columns = (array("Q"), array("Q"), array("b"))

    def find(self, key: int) -> int | None:
        place = bisect_left(self.hashes, key)
        found = place < len(self.hashes) and self.hashes[place] == key
        return place if found else None

    def insert(self, key: int, values: tuple[int, int, int]) -> None:
        place = bisect_left(self.hashes, key)
        self.hashes.insert(place, key)
        for column, value in zip(self.columns, values, strict=True):
            column.insert(place, value)

    def delete(self, place: int) -> None:
        del self.hashes[place]
        for column in self.columns:
            del column[place]


class IdleDocuments:
    """A map from hashes of URLs to ids, each with a mark whether this scan found the document."""

    def __init__(self) -> None:
        self._rows = [_Rows() for _ in range(ARRAYS)]

    def __len__(self) -> int:
        return sum(len(rows.hashes) for rows in self._rows)

    def __contains__(self, key: int) -> bool:
        return self._of(key).find(key) is not None

    def add(self, key: int, document_id: UUID, *, fresh: bool) -> None:
        """Add a document, in place of another one with this hash."""
        self.take(key)
        number = document_id.int
        self._of(key).insert(key, (number >> 64, number & LOW_BITS, fresh))

    def id_of(self, key: int) -> UUID | None:
        """The id of a document, if it is here."""
        rows = self._of(key)
        place = rows.find(key)
        return None if place is None else _id_at(rows, place)

    def take(self, key: int) -> tuple[UUID, bool] | None:
        """Remove a document and give its id and whether it is fresh, if it is here."""
        rows = self._of(key)
        place = rows.find(key)
        if place is None:
            return None
        taken = _id_at(rows, place), bool(rows.columns[2][place])
        rows.delete(place)
        return taken

    def _of(self, key: int) -> _Rows:
        return self._rows[key & ARRAYS - 1]


def _id_at(rows: _Rows, place: int) -> UUID:
    high, low, _ = rows.columns
    return UUID(int=high[place] << 64 | low[place])


def short_id(document_id: UUID) -> int:
    """The last half of an id as a signed number: enough to tell the documents of a scan apart."""
    return int.from_bytes(document_id.bytes[8:], signed=True)
