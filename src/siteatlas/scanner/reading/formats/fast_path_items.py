"""Images, news and videos of the fast path: one pattern for all items of a kind in a document.

The pattern is made from the fields that the items have, in their order (`fast_path_fields.py`),
or in any order if that changes. It returns the values column by column. Fields that repeat, that
have attributes or that contain others are read one by one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from siteatlas.scanner.reading.formats.extensions import MAX_VALUE_CHARS
from siteatlas.scanner.reading.formats.fast_path_columns import (
    BETWEEN,
    clean,
    has_section_end,
    rows_of,
)
from siteatlas.scanner.reading.formats.fast_path_fields import ATTRIBUTES, Field, FieldOrder, Shape
from siteatlas.scanner.reading.formats.fast_path_sections import (
    POSSESSIVE,
    SHORT_SECTION,
    without_sections,
)
from siteatlas.scanner.reading.formats.salvage import decode
from siteatlas.scanner.reading.tally import Extras
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

MAX_TIMES_LEARNED = 4
# Together with the fields of a pattern, no more than `extensions.py` allows for an item.
MAX_REPEATED = 32
MAX_REPEATED_CHARS = 256
MAX_CACHED_CHARS = 512
MAX_ATTRIBUTES = 16
ATTRIBUTE = re.compile(r'([A-Za-z_]++)="([^"]*+)"')
VALUE = re.compile(r"<[^/>]++>([^<]*+)")
VALUE_CHARS = f"[^<]{{0,{MAX_VALUE_CHARS}}}+"
NAMED_VALUE = re.compile(r"<[^/:]++:([^/>]++)>([^<]*+)")


class Items:
    """The items of one kind in one document."""

    def __init__(self, kind: str) -> None:
        self.tag = f"{kind}:{kind}"
        self._kind = kind
        self._order = FieldOrder(kind)
        self._times_learned = 0

    @property
    def shape(self) -> Shape:
        """The fields that the items have, as far as they are known."""
        return Shape(self._order.fields, in_any_order=self._order.changes)

    def learn(self, text: str) -> None:
        """Add the fields of the items in a text to those known."""
        self._order.learn(text)

    def take(self, text: str) -> tuple[list[Extras], list[str]] | None:
        """All items of a text, and the text around them; None for the strict parser."""
        pieces = self._split(text)
        while pieces is None and self._times_learned < MAX_TIMES_LEARNED:
            self._times_learned += 1
            self.learn(text)
            pieces = self._split(text)
        if pieces is None:
            return None
        width = _pattern(self._kind, self.shape).groups + 1
        items = self.read([pieces[at::width] for at in range(1, width)], self.shape)
        return None if items is None else (items, pieces[::width])

    def _split(self, text: str) -> list[str] | None:
        """The text split by its items; None when one of them does not have the known fields."""
        if not self._order.fields:
            return None
        pattern = _pattern(self._kind, self.shape)
        pieces = pattern.split(text)
        # Far less text to search than all of it.
        around = BETWEEN.join(pieces[:: pattern.groups + 1])
        return None if f"<{self.tag}>" in around else pieces

    def read(
        self, columns: Iterable[list[str]], shape: Shape, sections: Collection[str] = ()
    ) -> list[Extras] | None:
        """The extras of each item from its columns; None for the strict parser.

        `shape` is what the pattern was made from; more fields may be known by now. `sections` are
        the tags whose values are CDATA in this document.
        """
        table: dict[str, list[Any]] = {}
        attributes: dict[str, list[str]] = {}
        rest = map(_without_none, columns)
        for field in shape.fields:
            if field.has_attributes:
                found = _attribute_columns(field.name, next(rest))
                if found is None or not attributes.keys().isdisjoint(found):
                    return None
                attributes |= found
            column = next(rest)
            if field.is_scattered:
                column = _gathered(f"{self._kind}:{field.name}", column)
            # The pattern of repeated fields matches no CDATA.
            is_section = f"{self._kind}:{field.name}" in sections and not field.is_repeated
            if sections and not is_section and not field.children and has_section_end(column):
                return None
            values = _values(field, column, is_section=is_section)
            if values is None:
                return None
            table[field.name] = values
        if not table.keys().isdisjoint(attributes) or _repeat_too_often(shape.fields, table):
            return None
        items = rows_of(table | attributes)
        has_loc = self._kind != "image" or "" not in table.get("loc", [""])
        return items if has_loc and all(items) else None


def _without_none(values: list[str]) -> list[str]:
    """Values split out by a pattern, with "" for groups that did not match."""
    return [value or "" for value in values] if None in values else values


def _gathered(tag: str, column: list[str]) -> list[str]:
    """Only the fields with this tag, from texts that hold all fields of an item."""
    fields = re.compile(f"<{tag}>[^<]*+</").findall
    return ["".join(fields(raw)) for raw in column]


def _values(field: Field, column: list[str], *, is_section: bool) -> list[Any] | None:
    """The values of a column; a false one means that the field is absent or empty."""
    if field.is_repeated:
        return _lists(column)
    if field.children:
        if _has_long_text(column):
            return None
        children = [raw and _children(raw) for raw in column]
        return None if None in children else children
    return clean(column, escaped=not is_section)


def _has_long_text(column: list[str]) -> bool:
    """Whether a text with several values is longer than one may be.

    The limits of an entry follow from the number of texts, whatever they hold.
    """
    return max(map(len, column), default=0) > MAX_VALUE_CHARS


def _lists(column: list[str]) -> list[Any] | None:
    """The values of each text that holds any number of fields; None for the strict parser."""
    if _has_long_text(column):
        return None
    values = iter(clean(VALUE.findall("".join(column))))
    return [raw and list(islice(values, raw.count("</"))) for raw in column]


def _repeat_too_often(fields: Iterable[Field], table: Mapping[str, list[Any]]) -> bool:
    """Whether an item has so many fields that repeat, of all names, that it may reach a limit."""
    repeated = [field for field in fields if field.is_repeated]
    if len(repeated) == 1 and not repeated[0].is_scattered:
        # The pattern allows no more of them.
        return False
    counts = (map(len, table[field.name]) for field in repeated)
    return max(map(sum, zip(*counts, strict=True)), default=0) > MAX_REPEATED


def _children(raw: str) -> Extras | None:
    """The fields inside a field; cached if short, since news have the same in all entries."""
    children = _cached_children(raw) if len(raw) <= MAX_CACHED_CHARS else _read_children(raw)
    return None if children is None else children.copy()


def _read_children(raw: str) -> Extras | None:
    """The fields inside a field of an extension item, by name, uncached; None for the parser."""
    plain = without_sections(raw)
    if plain is None:
        return None
    pairs = NAMED_VALUE.findall(plain)
    if len(dict(pairs)) != len(pairs):
        return None
    values = clean([value for _, value in pairs])
    return {name: value for (name, _), value in zip(pairs, values, strict=True) if value}


_cached_children = lru_cache(maxsize=256)(_read_children)


def _attribute_columns(name: str, raws: list[str]) -> dict[str, list[str]] | None:
    """A column for each attribute of a field; None when the strict parser must read them."""
    known = {raw: _attributes(name, raw) if raw else {} for raw in set(raws)}
    columns: dict[str, list[str]] = {}
    for pairs in known.values():
        if pairs is None or "" in pairs.values() or len(columns) > MAX_ATTRIBUTES:
            return None
        columns.update({key: [] for key in pairs})
    for key in columns:
        values = {raw: (pairs or {}).get(key, "") for raw, pairs in known.items()}
        columns[key] = list(map(values.__getitem__, raws))
    return columns


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
def _pattern(kind: str, shape: Shape) -> re.Pattern[str]:
    """The fast-path pattern of an item of this kind with the fields of this shape."""
    if shape.in_any_order:
        inside = fields_in_any_order(kind, shape.fields, group=1)
    else:
        inside = "".join(optional(field_pattern(kind, field)) for field in shape.fields)
    return re.compile(f"<{kind}:{kind}>{ANY_XML_WHITE_SPACE}{inside}</{kind}:{kind}>")


def optional(pattern: str) -> str:
    """A pattern that may match nothing; as a branch, which is faster than `?`."""
    return f"(?:{pattern}|)"


def in_any_order(patterns: Mapping[int, str]) -> str:
    """Each of the patterns at most once, by the number of a group that it always has."""
    return _choices([_once(group, pattern) for group, pattern in patterns.items()], len(patterns))


def _once(group: int, pattern: str) -> str:
    """A pattern that fails if it has already matched the group of this number."""
    return f"(?({group})(?!)){pattern}"


def _choices(patterns: Collection[str], most: int) -> str:
    """Up to so many matches of any of the patterns.

    Not possessive, because the engine fails on groups in that.
    """
    return f"(?:{'|'.join(patterns)}){{1,{most}}}"


def required(group: int) -> str:
    """A pattern that matches nothing, and only if the group of this number has matched."""
    return f"(?({group})|(?!))"


def fields_in_any_order(
    kind: str, fields: Iterable[Field], group: int, sections: Collection[str] = ()
) -> str:
    """The pattern of the fields of an item, whose groups begin with the number `group`.

    The groups of scattered fields, which are the first, hold all fields.
    """
    patterns: list[str] = []
    scattered = 0
    for field in fields:
        pattern = field_pattern(kind, field, sections)
        patterns.append(pattern if field.is_scattered else _once(group, pattern))
        scattered += field.is_scattered
        group += field.group_count
    most = len(patterns) + (MAX_REPEATED if scattered else 0)
    return "(" * scattered + _choices(patterns, most) + ")" * scattered


def field_pattern(
    kind: str, field: Field, sections: Collection[str] = (), *, may_be_empty: bool = True
) -> str:
    """The pattern of one field of an item, also as an empty tag if it `may_be_empty`."""
    name, gap = f"{kind}:{field.name}", ANY_XML_WHITE_SPACE
    if field.is_repeated:
        one = f"<{name}>[^<]{{0,{MAX_REPEATED_CHARS}}}+</{name}>{gap}"
        return one if field.is_scattered else f"((?:{one}){{1,{MAX_REPEATED}}}{POSSESSIVE})"
    if field.children:
        children = [_child_pattern(f"{kind}:{child}", sections) for child in field.children]
        inside = f"(?:{'|'.join(children)}){{0,{len(children)}}}{POSSESSIVE}"
        return f"<{name}>{gap}({inside})</{name}>{gap}"
    attributes = f"({ATTRIBUTES})" if field.has_attributes else ""
    if name in sections:
        return rf"<{name}{attributes}><!\[CDATA\[({SHORT_SECTION})\]\]></{name}>{gap}"
    inside = f">({VALUE_CHARS})</{name}>"
    return f"<{name}{attributes}{f'(?:{inside}|{gap}/>)' if may_be_empty else inside}{gap}"


def _child_pattern(name: str, sections: Collection[str]) -> str:
    """The pattern that matches a field inside another field."""
    value = rf"<!\[CDATA\[{SHORT_SECTION}\]\]>" if name in sections else VALUE_CHARS
    return f"<{name}>{value}</{name}>{ANY_XML_WHITE_SPACE}"
