"""Values of extensions as whole columns, decoded and trimmed with a few searches for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from siteatlas.scanner.reading.formats.salvage import decode
from siteatlas.scanner.reading.tally import Extras
from siteatlas.scanner.reading.white_space import WHITE_SPACE, XML_WHITE_SPACE

BETWEEN = "\x00"
CDATA_END = "]]>"
# All that XML allows and `str.strip` takes for white space is, except for this.
NEXT_LINE = "\x85"


def column_of(values: list[str]) -> list[str]:
    """A column with "" for groups that did not match; empty if none did."""
    if None not in values:
        return values
    return [value or "" for value in values] if any(values) else []


def has_section_end(values: Sequence[str]) -> bool:
    """Whether any of the values contains `]]>`, which XML does not allow in text."""
    joined = BETWEEN.join(values)
    return "]" in joined and CDATA_END in joined


def clean(values: list[str], *, escaped: bool = True) -> list[str]:
    """The values without white space around them; if `escaped`, with their references replaced."""
    joined = BETWEEN.join(values)
    if escaped and "&" in joined:
        if joined.count("&") == joined.count("&amp;"):
            joined = joined.replace("&amp;", "&")
            values = joined.split(BETWEEN)
        else:
            values = list(map(decode, values))
            joined = BETWEEN.join(values)
    if joined.isascii() and not any(map(joined.__contains__, XML_WHITE_SPACE)):
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
        case (one, two, three):
            return [{one: a, two: b, three: c} for a, b, c in zip(*columns, strict=True)]
        case _:
            return _wide_rows(names, columns)


def _wide_rows(names: tuple[str, ...], columns: tuple[Sequence[Any], ...]) -> list[Extras]:
    """A dictionary for each row of four or more columns without absent values."""
    one, two, three, four, *others = names
    rows = [{one: a, two: b, three: c, four: d} for a, b, c, d in zip(*columns[:4], strict=True)]
    for name, column in zip(others, columns[4:], strict=True):
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return rows
