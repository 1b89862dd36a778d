"""Images, news and videos of the fast path: one pattern for all items of a kind in a document.

The pattern is made from the fields that the items have, in their order (`fast_path_fields.py`). It
returns the values column by column. Fields that repeat, that have attributes or that contain others
are read one by one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Any

from siteatlas.scanner.reading.formats.fast_path_columns import are_short, clean, rows_of
from siteatlas.scanner.reading.formats.fast_path_fields import ATTRIBUTES, Field, FieldOrder
from siteatlas.scanner.reading.formats.fast_path_sections import POSSESSIVE
from siteatlas.scanner.reading.formats.salvage import decode
from siteatlas.scanner.reading.tally import Extras
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

MAX_TIMES_LEARNED = 4
# Together with the fields of a pattern, no more than `extensions.py` allows for an item.
MAX_REPEATED = 32
MAX_CACHED_CHARS = 512
ATTRIBUTE = re.compile(r'([A-Za-z_]++)="([^"]*+)"')
VALUE = re.compile(r"<[^/>]++>([^<]*+)")
NAMED_VALUE = re.compile(r"<[^/:]++:([^/>]++)>([^<]*+)")


class Items:
    """The items of one kind in one document."""

    def __init__(self, kind: str) -> None:
        self.tag = f"{kind}:{kind}"
        self._kind = kind
        self._order = FieldOrder(kind)
        self._times_learned = 0

    def take(self, text: str, longest: int) -> tuple[list[Extras], list[str]] | None:
        """All items of a text, and the text around them; None for the strict parser."""
        pieces = self._split(text)
        while pieces is None and self._times_learned < MAX_TIMES_LEARNED:
            self._times_learned += 1
            self._order.learn(text)
            pieces = self._split(text)
        if pieces is None:
            return None
        width = _pattern(self._kind, self._order.fields).groups + 1
        columns = [_without_none(pieces[at::width]) for at in range(1, width)]
        items = self._items(columns, longest)
        return None if items is None else (items, pieces[::width])

    def _split(self, text: str) -> list[str] | None:
        """The text split by its items; None when one of them does not have the known fields."""
        if not self._order.fields:
            return None
        pattern = _pattern(self._kind, self._order.fields)
        pieces = pattern.split(text)
        return (
            pieces if len(pieces) // (pattern.groups + 1) == text.count(f"<{self.tag}>") else None
        )

    def _items(self, columns: list[list[str]], longest: int) -> list[Extras] | None:
        """The extras of each item from its columns; None for the strict parser."""
        table: dict[str, list[Any]] = {}
        attributes: dict[str, list[str]] = {}
        rest = iter(columns)
        for field in self._order.fields:
            if field.has_attributes:
                attributes[field.name] = next(rest)
            column = next(rest)
            if not are_short(column, longest):
                return None
            table[field.name] = _values(field, column)
        items = rows_of(table)
        if not all(items) or (self._kind == "image" and "" in table.get("loc", [""])):
            return None
        return items if _add_attributes(items, attributes) else None


def _without_none(values: list[str]) -> list[str]:
    """Values split out by a pattern, with "" for groups that did not match."""
    return [value or "" for value in values] if None in values else values


def _values(field: Field, column: list[str]) -> list[Any]:
    """The values of a column; a false one means that the field is absent or empty."""
    if field.is_repeated:
        return _lists(column)
    if field.children:
        return [raw and _children(raw) for raw in column]
    return clean(column)


def _lists(column: list[str]) -> list[Any]:
    """The values of each text that holds any number of fields."""
    values = iter(clean(VALUE.findall("".join(column))))
    return [raw and list(islice(values, raw.count("</"))) for raw in column]


def _children(raw: str) -> Extras:
    """The fields inside a field; cached if short, since news have the same in all entries."""
    return dict(_cached_children(raw) if len(raw) <= MAX_CACHED_CHARS else _read_children(raw))


def _read_children(raw: str) -> Extras:
    """The fields inside a field of an extension item, by name, uncached."""
    pairs = NAMED_VALUE.findall(raw)
    values = clean([value for _, value in pairs])
    return {name: value for (name, _), value in zip(pairs, values, strict=True) if value}


_cached_children = lru_cache(maxsize=256)(_read_children)


def _add_attributes(items: list[Extras], attributes: dict[str, list[str]]) -> bool:
    """Store attributes next to their fields; False when the strict parser must read them."""
    for name, column in attributes.items():
        for item, raw in zip(items, column, strict=True):
            if not raw:
                continue
            pairs = _attributes(name, raw)
            if pairs is None or not item.keys().isdisjoint(pairs):
                return False
            item.update(pairs)
    return True


def _attributes(name: str, raw: str) -> dict[str, str] | None:
    """The attributes of a field by key of the extras; cached if short, None if too long."""
    if len(raw) > MAX_CACHED_CHARS:
        return None
    return _read_attributes(name, raw)


@lru_cache(maxsize=256)
def _read_attributes(name: str, raw: str) -> dict[str, str] | None:
    """The attributes of a field by key of the extras; None for the strict parser."""
    pairs = ATTRIBUTE.findall(raw)
    values = {f"{name}_{key.lower()}": decode(value) for key, value in pairs}
    # Twice the same name is not XML, and some are not attributes.
    usual = len(values) == len(pairs) and not any(key.lower().startswith("xml") for key, _ in pairs)
    return values if usual else None


@lru_cache(maxsize=64)
def _pattern(kind: str, fields: tuple[Field, ...]) -> re.Pattern[str]:
    """The fast-path pattern of an item of this kind with these fields."""
    inside = "".join(_field_pattern(kind, field) for field in fields)
    return re.compile(f"<{kind}:{kind}>{ANY_XML_WHITE_SPACE}{inside}</{kind}:{kind}>")


def _field_pattern(kind: str, field: Field) -> str:
    """The part of an item's pattern that matches one field."""
    name, gap = f"{kind}:{field.name}", ANY_XML_WHITE_SPACE
    if field.is_repeated:
        return f"((?:<{name}>[^<]*+</{name}>{gap}){{0,{MAX_REPEATED}}}{POSSESSIVE})"
    if field.children:
        children = "".join(
            f"(?:<{kind}:{child}>[^<]*+</{kind}:{child}>{gap})?" for child in field.children
        )
        return f"(?:<{name}>{gap}({children})</{name}>{gap})?"
    attributes = f"({ATTRIBUTES})" if field.has_attributes else ""
    return f"(?:<{name}{attributes}(?:>([^<]*+)</{name}>|{gap}/>){gap})?"
