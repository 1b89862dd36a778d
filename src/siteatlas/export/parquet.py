"""Parquet, written row group by row group. Needs pyarrow, the extra `parquet`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from siteatlas.errors import ParquetUnavailable
from siteatlas.export.columns import ExportColumn, Kind
from siteatlas.export.encoding import ExportMetadata

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ParquetUnavailable from error

# Large enough to be read fast, small enough to be held: twice as many took 25 MB more.
ROWS_PER_GROUP = 10_000
# Arrow's own allocators keep what is freed for later exports.
pa.set_memory_pool(pa.system_memory_pool())


class _Outbox:
    """The file that pyarrow writes to: it holds bytes until they are taken."""

    closed = False

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: Any) -> int:
        """Keep bytes."""
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do: what was written is still to be taken."""

    def take(self) -> bytes:
        """The bytes since the last call."""
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
        """The mark at the start of the file."""
        return self._outbox.take()

    @property
    def has_group(self) -> bool:
        """Whether enough rows for a row group are collected."""
        return self._held >= ROWS_PER_GROUP

    def rows(self, views: Sequence[Any]) -> bytes:
        """Nothing yet: rows are collected until there are enough."""
        if views:
            self._batches.append(self._record_batch(views))
            self._held += len(views)
        return b""

    def group(self) -> bytes:
        """The collected rows as one row group."""
        table = pa.Table.from_batches(self._batches, schema=self._schema)
        self._batches, self._held = [], 0
        self._writer.write_table(table, row_group_size=table.num_rows)
        return self._outbox.take()

    def end(self) -> bytes:
        """The last row group and the footer, without which no reader opens the file."""
        rest = self.group() if self._held else b""
        self._writer.close()
        return rest + self._outbox.take()

    def _record_batch(self, views: Sequence[Any]) -> Any:
        """Some rows as columns."""
        arrays = [
            pa.array([column.value(view) for view in views], type=field.type)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        return pa.record_batch(arrays, schema=self._schema)


def _arrow_type(column: ExportColumn) -> Any:
    """The Arrow type of a column."""
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
