"""Values of extensions as whole columns, decoded and trimmed with a few searches for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from siteatlas.scanner.reading.formats.extensions import MAX_VALUE_CHARS
from siteatlas.scanner.reading.formats.salvage import decode
from siteatlas.scanner.reading.tally import Extras
from siteatlas.scanner.reading.white_space import WHITE_SPACE

BETWEEN = "\x00"
# All that XML allows and `str.strip` takes for white space is, except for this.
NEXT_LINE = "\x85"


def are_short(values: list[str], longest: int) -> bool:
    """Whether no value is so long that it must be cut; they are from texts of at most `longest`."""
    return longest <= MAX_VALUE_CHARS or max(map(len, values)) <= MAX_VALUE_CHARS


def clean(values: list[str]) -> list[str]:
    """The values with their references replaced and without white space around them."""
    joined = BETWEEN.join(values)
    if "&" in joined:
        if joined.count("&") == joined.count("&amp;"):
            joined = joined.replace("&amp;", "&")
            values = joined.split(BETWEEN)
        else:
            values = list(map(decode, values))
            joined = BETWEEN.join(values)
    if joined.isascii() and " " not in joined and "\n" not in joined and "\t" not in joined:
        return values
    if NEXT_LINE in joined:
        return [value.strip(WHITE_SPACE) for value in values]
    return list(map(str.strip, values))


def rows_of(table: Mapping[str, Sequence[Any]]) -> list[Extras]:
    """A dictionary for each row of the columns, without values that are absent or empty."""
    full = {name: column for name, column in table.items() if all(column)}
    rows = _full_rows(tuple(full), tuple(full.values()), len(next(iter(table.values()))))
    for name, column in table.items():
        if name not in full:
            for row, value in zip(rows, column, strict=True):
                if value:
                    row[name] = value
    return rows


def _full_rows(
    names: tuple[str, ...], columns: tuple[Sequence[Any], ...], size: int
) -> list[Extras]:
    """A dictionary for each row of extension columns without absent values."""
    match names:
        case ():
            return [{} for _ in range(size)]
        case (only,):
            return [{only: value} for value in columns[0]]
        case (one, two):
            return [{one: first, two: second} for first, second in zip(*columns, strict=True)]
        case _:
            return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
