"""The formats of an export: batches of views in, bytes out.

CSV and JSON Lines are made here, Parquet by `parquet.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

import orjson

from siteatlas.aio.fairness import fair_loop
from siteatlas.csv_cells import csv_cell
from siteatlas.export.columns import ExportColumn, Kind

JSON_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
# Encoded in about two milliseconds.
ROWS_PER_SLICE = 100


class ExportFormat(StrEnum):
    """The formats of an export."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        """The content type of a response in this format."""
        return MEDIA_TYPES[self]


MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.JSONL: "application/jsonl",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


@dataclass(frozen=True, slots=True)
class ExportMetadata:
    """What an export is of: its schema, and the number of the feed that it is not older than."""

    schema: str
    as_of_seq: int
    feed_id: str


class Encoder(Protocol):
    """Makes the bytes of one export; `start`, then some rows at a time, then `end`."""

    def start(self) -> bytes:
        """The bytes before the first row."""

    def rows(self, views: Sequence[Any]) -> bytes:
        """The bytes of some rows."""

    def end(self) -> bytes:
        """The bytes after the last row."""


async def encoded(
    encoder: Encoder, batches: AsyncIterator[Sequence[Any]]
) -> AsyncGenerator[bytes, None]:
    """The bytes of an export; they end before its end if reading fails."""
    yield encoder.start()
    async for views in batches:
        parts = fair_loop().time_slices(map(encoder.rows, row_slices(views)))
        yield b"".join([part async for part in parts])
    yield encoder.end()


def row_slices(views: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The rows of a batch, as many at a time as are encoded in one time slice."""
    for first in range(0, len(views), ROWS_PER_SLICE):
        yield views[first : first + ROWS_PER_SLICE]


class CsvEncoder:
    """CSV: one header line, every cell quoted, no cell that a spreadsheet would calculate."""

    def __init__(self, columns: Sequence[ExportColumn]) -> None:
        self._columns = columns

    def start(self) -> bytes:
        """The header line."""
        return _csv_line([column.name for column in self._columns]).encode()

    def rows(self, views: Sequence[Any]) -> bytes:
        """One line per row."""
        lines = (
            _csv_line([_cell_text(column, column.value(view)) for column in self._columns])
            for view in views
        )
        return "".join(lines).encode("utf-8", "backslashreplace")

    def end(self) -> bytes:
        """Nothing: a CSV file has no place for an end mark."""
        return b""


def _csv_line(texts: Sequence[str]) -> str:
    """One line of CSV."""
    return ",".join(map(csv_cell, texts)) + "\r\n"


def _cell_text(column: ExportColumn, value: Any) -> str:
    """The value of a column as the text of a cell; empty for none."""
    if value is None:
        return ""
    if column.kind is Kind.TIME:
        return _time_text(value)
    if column.kind is Kind.TEXTS:
        return " ".join(value)
    return str(value)


def _time_text(value: datetime) -> str:
    """A time in UTC, as the API writes it."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class JsonLinesEncoder:
    """JSON Lines: one object per row with the fields of the API, and a last line that ends it."""

    def __init__(self, metadata: ExportMetadata) -> None:
        self._metadata = metadata
        self._count = 0

    def start(self) -> bytes:
        """Nothing: the first line is a row."""
        return b""

    def rows(self, views: Sequence[Any]) -> bytes:
        """One line per row."""
        self._count += len(views)
        return b"".join(orjson.dumps(view, default=str, option=JSON_OPTIONS) for view in views)

    def end(self) -> bytes:
        """The line that proves that none is missing."""
        made = self._metadata
        last = {
            "end": True,
            "count": self._count,
            "schema": made.schema,
            "as_of_seq": made.as_of_seq,
            "feed_id": made.feed_id,
        }
        return orjson.dumps(last, option=JSON_OPTIONS)
