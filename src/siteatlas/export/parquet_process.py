"""The process that encodes one export as Parquet, row group by row group.

Only this process imports pyarrow, the extra `parquet`. `parquet.py` starts it, and says what goes
through its pipes.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Any

from siteatlas.export.encoding import SCHEMAS, ExportColumn, Exported, ExportMetadata, Kind
from siteatlas.export.parquet import LENGTH, UNAVAILABLE

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    sys.exit(UNAVAILABLE)

# Large enough to be read fast, small enough to be held.
ROWS_PER_GROUP = 10_000
# Arrow's own allocators keep what is freed.
pa.set_memory_pool(pa.system_memory_pool())


class _Outbox:
    """The file that pyarrow writes to: it holds bytes until they are taken."""

    closed = False

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: Any) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do: what was written is still to be taken."""

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


class ParquetEncoder:
    """Parquet with nested types; schema, number and feed are in the metadata of the file."""

    def __init__(self, columns: Sequence[ExportColumn], metadata: ExportMetadata) -> None:
        self._columns = columns
        self._schema = pa.schema(
            [(column.name, _arrow_type(column)) for column in columns],
            metadata={
                "siteatlas.schema": metadata.schema,
                "siteatlas.as_of_seq": str(metadata.as_of_seq),
                "siteatlas.feed_id": metadata.feed_id,
            },
        )
        self._outbox = _Outbox()
        self._writer = pq.ParquetWriter(self._outbox, self._schema, compression="zstd")
        self._batches: list[Any] = []
        self._held = 0

    def start(self) -> bytes:
        """The bytes before the first row group."""
        return self._outbox.take()

    def add(self, views: Sequence[Any]) -> None:
        """Collect rows."""
        self._batches.append(self._record_batch(views))
        self._held += len(views)

    def full_group(self) -> bytes:
        """The collected rows as a row group if they are enough for one, else nothing."""
        return self._group() if self._held >= ROWS_PER_GROUP else b""

    def end(self) -> bytes:
        """The last row group and the footer, without which no reader opens the file."""
        rest = self._group() if self._held else b""
        self._writer.close()
        return rest + self._outbox.take()

    def _group(self) -> bytes:
        table = pa.Table.from_batches(self._batches, schema=self._schema)
        self._batches, self._held = [], 0
        self._writer.write_table(table, row_group_size=table.num_rows)
        return self._outbox.take()

    def _record_batch(self, views: Sequence[Any]) -> Any:
        arrays = [
            pa.array([column.value(view) for view in views], type=field.type)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        return pa.record_batch(arrays, schema=self._schema)


def _arrow_type(column: ExportColumn) -> Any:
    record = pa.struct([(name, pa.string()) for name in column.fields])
    types = {
        Kind.TEXT: pa.string(),
        Kind.INTEGER: pa.int64(),
        Kind.NUMBER: pa.float64(),
        Kind.TIME: pa.timestamp("us", tz="UTC"),
        Kind.TEXTS: pa.list_(pa.string()),
        Kind.RECORD: record,
        Kind.RECORDS: pa.list_(record),
    }
    return types[column.kind]


def main() -> None:
    """Encode the rows from stdin to stdout, until the process that sends them ends."""
    try:
        _encode_export()
    except (EOFError, pickle.UnpicklingError, BrokenPipeError):
        # The export was cancelled, or its process is gone.
        sys.exit(1)


def _encode_export() -> None:
    what, metadata = _receive()
    schema = SCHEMAS[Exported(what)]
    encoder = ParquetEncoder(schema.nested, metadata)
    view = make_dataclass("View", schema.view_fields, slots=True)
    views: list[Any] = []
    _answer(encoder.start())
    for rows in iter(_receive, None):
        views += (view(*row) for row in rows)
        if not rows:
            encoder.add(views)
            views.clear()
            _answer(encoder.full_group())
    _answer(encoder.end())


def _receive() -> Any:
    # Nobody else can write to this pipe.
    return pickle.load(sys.stdin.buffer)  # noqa: S301


def _answer(data: bytes) -> None:
    sys.stdout.buffer.write(LENGTH.pack(len(data)) + data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
