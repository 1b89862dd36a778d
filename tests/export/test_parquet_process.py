"""The row groups of a Parquet file."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow.parquet as pq
import pytest

from siteatlas.export import parquet_process
from siteatlas.export.encoding import ExportColumn, ExportMetadata, Kind
from siteatlas.export.parquet_process import ParquetEncoder


@dataclass
class Row:
    number: int


COLUMNS = [ExportColumn("number", Kind.INTEGER, lambda row: row.number)]


def encoded(batches: list[list[Row]]) -> bytes:
    """A file of these batches."""
    encoder = ParquetEncoder(COLUMNS, ExportMetadata("rows/1", 7, "feed"))
    written = encoder.start()
    for rows in batches:
        encoder.add(rows)
        written += encoder.full_group()
    return written + encoder.end()


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [([], []), ([3], [3]), ([2, 2, 2], [4, 2]), ([4, 4], [4, 4]), ([1, 9], [10])],
)
def test_batches_are_collected_until_they_fill_a_row_group(
    sizes: list[int], groups: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(parquet_process, "ROWS_PER_GROUP", 4)
    file = pq.ParquetFile(io.BytesIO(encoded([[Row(n) for n in range(size)] for size in sizes])))
    found = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert found == groups
    expected = [n for size in sizes for n in range(size)]
    assert file.read().column("number").to_pylist() == expected
