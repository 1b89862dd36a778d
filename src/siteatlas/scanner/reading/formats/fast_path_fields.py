"""Learns which fields the items of a document have, and in which order.

Most generators write the same fields in the same order, and leave out those that have no value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from siteatlas.scanner.reading.formats.extensions import REPEATED_FIELDS
from siteatlas.scanner.reading.formats.fast_path_sections import POSSESSIVE
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

MAX_FIELDS = 32
MAX_ITEMS = 300
MAX_TAGS = 256
ATTRIBUTES = rf'(?:[ \t\n]++[A-Za-z_]++="[^"<\t\n]*+")*{POSSESSIVE}'


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an item; `children` are the names of the fields that it contains.

    `is_scattered` if it is repeated with other fields in between.
    """

    name: str
    has_attributes: bool = False
    children: tuple[str, ...] = ()
    is_scattered: bool = False

    @property
    def is_repeated(self) -> bool:
        """Whether the field may occur several times in one item."""
        return self.name in REPEATED_FIELDS

    @property
    def group_count(self) -> int:
        """The number of groups that the pattern of the field has."""
        return 1 + self.has_attributes


class Shape(NamedTuple):
    """What all items of one kind have: fields, in this order or in any, or attributes."""

    fields: tuple[Field, ...] = ()
    attributes: tuple[str, ...] = ()
    in_any_order: bool = False


@dataclass(slots=True)
class FieldOrder:
    """The fields of one kind of item; empty if no pattern can be built for them.

    `changes` if the items do not all have the fields in this order. Scattered fields come first.
    """

    kind: str
    fields: tuple[Field, ...] = ()
    changes: bool = False

    def learn(self, text: str) -> None:
        """Add the fields of the items in a text to those known."""
        tag = f"{self.kind}:{self.kind}>"
        fields = {known.name: known for known in self.fields}
        order = [*fields]
        items = [item.partition(f"</{tag}")[0] for item in text.split(f"<{tag}")[1 : MAX_ITEMS + 1]]
        # Most items have the same tags.
        for tags in dict.fromkeys(tuple(_tags(self.kind).findall(item)) for item in items):
            seen = _fields_of(tags[:MAX_TAGS])
            merge_order(order, [*seen])
            self.changes |= [name for name in order if name in seen] != [*seen]
            self.changes |= any(new.is_scattered for new in seen.values())
            for name, new in seen.items():
                fields[name] = _merge_field(fields.get(name), new)
            if not _is_usual(fields.values()):
                self.fields = ()
                return
        by_place = (fields[name] for name in order)
        self.fields = tuple(sorted(by_place, key=lambda field: not field.is_scattered))


def _fields_of(tags: Iterable[tuple[str, str, str, str]]) -> dict[str, Field]:
    """The fields of one item, from its tags."""
    fields: dict[str, Field] = {}
    opened, last, inside = "", "", list[str]()
    for slash, name, attributes, empty in tags:
        if not slash and opened:
            inside.append(name)
        elif not slash:
            is_scattered = name in REPEATED_FIELDS and name in fields and name != last
            new = Field(name, bool(attributes), is_scattered=is_scattered)
            fields[name] = _merge_field(fields.get(name), new)
            opened, last = "" if empty else name, name
        elif name == opened:
            fields[name] = _merge_field(fields[name], Field(name, children=tuple(inside)))
            opened, inside = "", []
    return fields


@lru_cache(maxsize=8)
def _tags(kind: str) -> re.Pattern[str]:
    """The pattern of the tags of one kind of extension item."""
    return re.compile(rf"<(/?){kind}:([a-z_]{{1,40}}+)({ATTRIBUTES}){ANY_XML_WHITE_SPACE}(/?)>")


def _merge_field(known: Field | None, new: Field) -> Field:
    """A field with what is known of it from earlier items and from this one."""
    if known is None:
        return new
    children = [*known.children]
    merge_order(children, [*new.children])
    return Field(
        known.name,
        known.has_attributes or new.has_attributes,
        tuple(children),
        known.is_scattered or new.is_scattered,
    )


def merge_order(order: list[str], names: list[str]) -> None:
    """Insert the names that are new, each after the one that it follows."""
    place = 0
    for name in names:
        if name not in order:
            order.insert(place, name)
        place = order.index(name) + 1


def _is_usual(fields: Collection[Field]) -> bool:
    """Whether a pattern can be built for these fields."""
    size = sum(1 + len(one.children) for one in fields)
    return size <= MAX_FIELDS and not any(_is_unusual(one) for one in fields)


def _is_unusual(one: Field) -> bool:
    """Whether a field has a combination of features that no pattern can express."""
    if one.is_repeated or one.children:
        mixed = one.is_repeated and one.children
        return bool(mixed or one.has_attributes or REPEATED_FIELDS.intersection(one.children))
    return False
