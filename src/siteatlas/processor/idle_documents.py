"""The ids of documents of which nothing else must be known, by the hashes of their URLs.

A scan may list thousands of documents and take hours to read them. Of each one that waits or has
been read, 25 bytes are kept here; `documents.py` keeps those in work.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from uuid import UUID

from siteatlas.hash_arrays import index_of

ARRAYS = 16
LOW_BITS = (1 << 64) - 1


class _IdleRows:
    """Columns sorted by hash: hash, both halves of the id, and whether the document is fresh."""

    def __init__(self) -> None:
        self.hashes = array("q")
        self.columns = (array("Q"), array("Q"), array("b"))

    def find_document(self, key: int) -> int | None:
        """The position of an idle document of the running job, by the hash of its URL."""
        return index_of(self.hashes, key)

    def insert_document(self, key: int, values: tuple[int, int, int]) -> None:
        """Insert an idle document of the running job, in the order of URL hashes."""
        position = bisect_left(self.hashes, key)
        self.hashes.insert(position, key)
        for column, value in zip(self.columns, values, strict=True):
            column.insert(position, value)

    def delete_document(self, position: int) -> None:
        """Delete a document that is no longer idle: the running job reads it now."""
        del self.hashes[position]
        for column in self.columns:
            del column[position]


class IdleDocuments:
    """A map from hashes of URLs to ids, each with a flag whether this scan found the document."""

    def __init__(self) -> None:
        self._rows = [_IdleRows() for _ in range(ARRAYS)]

    def __len__(self) -> int:
        return sum(len(rows.hashes) for rows in self._rows)

    def __contains__(self, key: int) -> bool:
        return self._rows_of_document(key).find_document(key) is not None

    def add(self, key: int, document_id: UUID, *, fresh: bool) -> None:
        """Add a document; it replaces another one with the same hash."""
        self.take(key)
        number = document_id.int
        self._rows_of_document(key).insert_document(key, (number >> 64, number & LOW_BITS, fresh))

    def id_of(self, key: int) -> UUID | None:
        """The id of a document, if it is here."""
        rows = self._rows_of_document(key)
        position = rows.find_document(key)
        return None if position is None else _idle_document_id(rows, position)

    def take(self, key: int) -> tuple[UUID, bool] | None:
        """Remove a document; return its id and whether it is fresh, None if it is not here."""
        rows = self._rows_of_document(key)
        position = rows.find_document(key)
        if position is None:
            return None
        taken = _idle_document_id(rows, position), bool(rows.columns[2][position])
        rows.delete_document(position)
        return taken

    def _rows_of_document(self, key: int) -> _IdleRows:
        """The part of the idle documents of the running job in which a URL hash is kept."""
        return self._rows[key & ARRAYS - 1]


def _idle_document_id(rows: _IdleRows, position: int) -> UUID:
    """The id of an idle document of the running job, joined from its two halves."""
    high, low, _ = rows.columns
    return UUID(int=high[position] << 64 | low[position])


def short_id(document_id: UUID) -> int:
    """The last half of an id as a signed number: enough to tell the documents of a scan apart."""
    return int.from_bytes(document_id.bytes[8:], signed=True)
