"""How the entries of a document are written, and the one pattern that matches them whole.

A layout is learned from the first entries of a document. What the pattern cannot express is left
out of it, so that the entry does not match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from siteatlas.scanner.reading.formats.fast_path_fields import Shape
from siteatlas.scanner.reading.formats.fast_path_items import field_pattern, optional
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
        return sum(1 + field.has_attributes for field in fields) if fields else 2

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
    """The order of an entry's parts, the items in the place of `extras`, and what is CDATA."""

    order: tuple[str, ...]
    slots: tuple[Slots, ...] = ()
    sections: frozenset[str] = frozenset()

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
    parts = "".join(_part(name, layout, loc) for name in layout.order)
    return re.compile(f"<url>{ANY_XML_WHITE_SPACE}{parts}</url>")


def _part(name: str, layout: Layout, loc: str) -> str:
    """The pattern of one part of an entry."""
    gap = ANY_XML_WHITE_SPACE
    if name == EXTRAS:
        return "".join(_slots_pattern(slots, layout.sections) for slots in layout.slots)
    value = loc if name == "loc" else VALUE
    if name in layout.sections:
        inside = rf"<!\[CDATA\[({SHORT_SECTION if name == 'loc' else VALUE})\]\]>"
    else:
        inside = f"({value})"
    if name == "loc":
        return f"<loc>{gap}{inside}{gap}</loc>{gap}"
    return optional(f"<{name}>{inside}</{name}>{gap}")


def _slots_pattern(slots: Slots, sections: frozenset[str]) -> str:
    """The pattern of the items of one kind, each inside the one before."""
    item, pattern = _item_pattern(slots, sections), ""
    for _ in range(slots.count):
        pattern = optional(item + pattern)
    return pattern


def _item_pattern(slots: Slots, sections: frozenset[str]) -> str:
    """The pattern of one item, with the groups of its values."""
    gap, kind = ANY_XML_WHITE_SPACE, slots.kind
    if slots.shape.attributes:
        return link_pattern(slots.shape.attributes) + gap
    required = REQUIRED_FIELDS[kind]
    fields = [
        field_pattern(kind, field, sections, may_be_empty=False)
        if field.name == required
        else optional(field_pattern(kind, field, sections))
        for field in slots.shape.fields
    ]
    return f"<{kind}:{kind}>{gap}{''.join(fields)}</{kind}:{kind}>{gap}"
