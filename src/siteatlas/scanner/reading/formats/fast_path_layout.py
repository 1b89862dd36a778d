"""How the entries of a document are written, and the one pattern that matches them whole.

A layout is learned from the first entries of a document. Where the order of parts or fields
changes, the pattern allows any. What the pattern cannot express is left out of it, so that the
entry does not match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from siteatlas.scanner.reading.formats.fast_path_fields import Shape
from siteatlas.scanner.reading.formats.fast_path_items import (
    field_pattern,
    fields_in_any_order,
    in_any_order,
    optional,
    required,
)
from siteatlas.scanner.reading.formats.fast_path_links import link_pattern
from siteatlas.scanner.reading.formats.fast_path_order import EXTRAS, USUAL_ORDER
from siteatlas.scanner.reading.formats.fast_path_sections import SHORT_SECTION
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

# So many values of the maximum length are still below the limits of `extensions.py`.
MAX_GROUPS = 48
# ASCII only, which the engine matches by a bitmap, and never the end of a CDATA section.
VALUE = r"[\t\n\r -%'-;=-\\^-~]++"
# Each item has this field, so that its column tells which entries have the item.
REQUIRED_FIELDS = {"image": "loc", "news": "title", "video": "title"}


@dataclass(frozen=True, slots=True)
class Slots:
    """The items of one kind in an entry, at most `count`, all of one shape."""

    kind: str
    count: int
    shape: Shape = Shape()

    @property
    def width(self) -> int:
        """The number of groups of each item."""
        fields = self.shape.fields
        return sum(field.group_count for field in fields) if fields else 2

    @property
    def required_group(self) -> int:
        """The index of the group that every item of this kind has."""
        index = 0
        for field in self.shape.fields:
            index += field.has_attributes
            if field.name == REQUIRED_FIELDS[self.kind]:
                break
            index += 1
        return index


def is_usual(slots: Slots) -> bool:
    """Whether a pattern can be built for these items."""
    if slots.kind == "xhtml":
        return bool(slots.shape.attributes)
    return any(field.name == REQUIRED_FIELDS[slots.kind] for field in slots.shape.fields)


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of an entry's parts, the items in the place of `extras`, and what is CDATA.

    If `in_any_order`, the order is only that of the groups.
    """

    order: tuple[str, ...]
    slots: tuple[Slots, ...] = ()
    sections: frozenset[str] = frozenset()
    in_any_order: bool = False

    def with_any_order(self) -> Layout:
        """The layout of entries that have the same parts in any order."""
        return replace(self, order=(*USUAL_ORDER, EXTRAS), in_any_order=True)

    @property
    def field_places(self) -> list[int]:
        """The groups of loc, lastmod, changefreq and priority."""
        places = self._places()
        return [places[name] for name in USUAL_ORDER]

    @property
    def slot_places(self) -> list[tuple[Slots, int]]:
        """The items in their order, and the first group of each."""
        places = self._places()
        return [(slots, places[slots.kind]) for slots in self.slots]

    def _places(self) -> dict[str, int]:
        """The first group of each field and of each kind of item."""
        places, place = dict[str, int](), 0
        for name in self.order:
            for slots in self.slots if name == EXTRAS else ():
                places[slots.kind] = place
                place += slots.count * slots.width
            if name != EXTRAS:
                places[name] = place
                place += 1
        return places


@lru_cache(maxsize=64)
def entry_pattern(layout: Layout, loc: str) -> re.Pattern[str]:
    """The pattern of a whole entry; `loc` is that of its URL, unless it is CDATA."""
    if layout.in_any_order:
        parts = _parts_in_any_order(layout, loc)
    else:
        parts = "".join(_part(name, layout, loc) for name in layout.order)
    return re.compile(f"<url>{ANY_XML_WHITE_SPACE}{parts}</url>")


def _parts_in_any_order(layout: Layout, loc: str) -> str:
    """The pattern of all parts of an entry, in any order."""
    fields = dict(zip(USUAL_ORDER, layout.field_places, strict=True))
    parts = {place + 1: _field_part(name, layout, loc) for name, place in fields.items()}
    for slots, place in layout.slot_places:
        group = place + 1
        parts[group + slots.required_group] = _slots_pattern(slots, layout.sections, group)
    return in_any_order(parts) + required(fields["loc"] + 1)


def _part(name: str, layout: Layout, loc: str) -> str:
    """The pattern of one part of an entry; only the URL must be there."""
    if name == EXTRAS:
        places = layout.slot_places
        items = [_slots_pattern(slots, layout.sections, place + 1) for slots, place in places]
        return "".join(map(optional, items))
    part = _field_part(name, layout, loc)
    return part if name == "loc" else optional(part)


def _field_part(name: str, layout: Layout, loc: str) -> str:
    """The pattern of one of the four fields of an entry."""
    gap = ANY_XML_WHITE_SPACE
    value = loc if name == "loc" else VALUE
    if name in layout.sections:
        inside = rf"<!\[CDATA\[({SHORT_SECTION if name == 'loc' else VALUE})\]\]>"
    else:
        inside = f"({value})"
    if name == "loc":
        inside = gap + inside + gap
    return f"<{name}>{inside}</{name}>{gap}"


def _slots_pattern(slots: Slots, sections: frozenset[str], group: int) -> str:
    """The pattern of the items of one kind, each inside the one before, from this group on."""
    pattern = ""
    for slot in reversed(range(slots.count)):
        item = _item_pattern(slots, sections, group + slot * slots.width)
        pattern = item + optional(pattern) if pattern else item
    return pattern


def _item_pattern(slots: Slots, sections: frozenset[str], group: int) -> str:
    """The pattern of one item, with the groups of its values, from this group on."""
    gap, kind, shape = ANY_XML_WHITE_SPACE, slots.kind, slots.shape
    if shape.attributes:
        return link_pattern(shape.attributes) + gap
    if shape.in_any_order:
        fields = fields_in_any_order(kind, shape.fields, group, sections)
        fields += required(group + slots.required_group)
    else:
        fields = _fields_in_order(slots, sections)
    return f"<{kind}:{kind}>{gap}{fields}</{kind}:{kind}>{gap}"


def _fields_in_order(slots: Slots, sections: frozenset[str]) -> str:
    """The pattern of the fields of an item; only the required one must be there."""
    kind = slots.kind
    return "".join(
        field_pattern(kind, field, sections, may_be_empty=False)
        if field.name == REQUIRED_FIELDS[kind]
        else optional(field_pattern(kind, field, sections))
        for field in slots.shape.fields
    )
