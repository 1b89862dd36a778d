"""What entries consist of on the fast path, and the patterns that match it.

A `Layout` says how the entries of a document are written, with items such as images in their
places; `entry_pattern` makes from it one pattern that matches an entry whole. `Extensions` reads
the items: their fields are learned from the first ones, since most generators write the same
fields in the same order, and the values are read column by column for all items of a text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress, groupby, islice, takewhile
from typing import Any, NamedTuple

from siteatlas.scanner.reading.entries import (
    ANY_XML_WHITE_SPACE,
    WHITE_SPACE,
    XML_WHITE_SPACE,
    Extras,
)
from siteatlas.scanner.reading.formats.elements import has_extreme_tag
from siteatlas.scanner.reading.formats.extensions import MAX_VALUE_CHARS, REPEATED_FIELDS, in_order
from siteatlas.scanner.reading.formats.salvage import decode

BETWEEN = "\x00"
CDATA_START = "<![CDATA["
CDATA_END = "]]>"
# CPython 3.11.0 to 3.11.4 match possessive groups wrongly (gh-106052), and later ones fail on
# captures inside them (gh-101955), of which there must be none.
POSSESSIVE = "+" if sys.version_info >= (3, 11, 5) else ""
# Content without `<`, of less than 1,000 characters; a bracket in it is rare.
SHORT_SECTION = rf"[^\]<]{{0,500}}+(?:\](?!\]>)[^\]<]{{0,50}}+){{0,9}}{POSSESSIVE}"
ATTRIBUTES = rf'(?:[ \t\n]++[A-Za-z_]++="[^"<\t\n]*+")*{POSSESSIVE}'
# ASCII only, which the engine matches by a bitmap, and never the end of a CDATA section.
PLAIN_VALUE = r"[\t\n\r -%'-;=-\\^-~]++"
# Together with the fields of a pattern, no more than `extensions.py` allows for an item.
MAX_REPEATED = 32
MAX_CACHED_CHARS = 512
USUAL_ORDER = ("loc", "lastmod", "changefreq", "priority")
# All that an entry contains besides its four fields, in one place.
EXTRAS = "extras"
# Each item has this field, so that its column tells which entries have the item.
REQUIRED_FIELDS = {"image": "loc", "news": "title", "video": "title"}

# The items of one kind, and how many of them each entry has.
ItemsOfEntries = tuple[list[Extras], list[int]]


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
        places, place = dict[str, int](), 0
        for name in self.order:
            for slots in self.slots if name == EXTRAS else ():
                places[slots.kind] = place
                place += slots.count * slots.width
            if name != EXTRAS:
                places[name] = place
                place += 1
        return places


_find_names = re.compile(r"<(\w+)>").findall


def order_of_first_entry(chunk: str, block: str | None) -> tuple[str, ...]:
    """The order that all entries must have; empty if the first is not plain.

    What it lacks is expected at its end.
    """
    whole, blocks = _first_entry_patterns(block)
    entry = whole.search(chunk)
    if entry is None:
        return ()
    names = _find_names(blocks.sub(f"<{EXTRAS}>", entry[1]) if blocks else entry[1])
    if len(set(names)) != len(names) or "loc" not in names:
        return ()
    usual = (*USUAL_ORDER, EXTRAS) if blocks else USUAL_ORDER
    if names == [name for name in usual if name in names]:
        return usual
    return (*names, *(name for name in usual if name not in names))


@lru_cache(maxsize=8)
def _first_entry_patterns(block: str | None) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    gap = ANY_XML_WHITE_SPACE
    field = "|".join(f"<{name}>[^<]*+</{name}>{gap}" for name in USUAL_ORDER)
    part = field if block is None else f"(?:{field}|{block})"
    whole = re.compile(rf"<url>{gap}((?:{part})+)</url>")
    return whole, None if block is None else re.compile(f"{block}+")


@lru_cache(maxsize=64)
def entry_pattern(layout: Layout, loc: str) -> re.Pattern[str]:
    """The pattern of a whole entry; `loc` is that of its URL, unless it is CDATA."""
    if layout.in_any_order:
        parts = _parts_in_any_order(layout, loc)
    else:
        parts = "".join(_part(name, layout, loc) for name in layout.order)
    return re.compile(f"<url>{ANY_XML_WHITE_SPACE}{parts}</url>")


def _parts_in_any_order(layout: Layout, loc: str) -> str:
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
    gap = ANY_XML_WHITE_SPACE
    value = loc if name == "loc" else PLAIN_VALUE
    if name in layout.sections:
        inside = rf"<!\[CDATA\[({SHORT_SECTION if name == 'loc' else PLAIN_VALUE})\]\]>"
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
    gap, kind, shape = ANY_XML_WHITE_SPACE, slots.kind, slots.shape
    if shape.attributes:
        return link_pattern(shape.attributes) + gap
    if shape.in_any_order:
        fields = fields_in_any_order(kind, shape.fields, group, sections)
        fields += required(group + slots.required_group)
    else:
        # Only the required field must be there.
        fields = "".join(
            field_pattern(kind, field, sections, may_be_empty=False)
            if field.name == REQUIRED_FIELDS[kind]
            else optional(field_pattern(kind, field, sections))
            for field in shape.fields
        )
    return f"<{kind}:{kind}>{gap}{fields}</{kind}:{kind}>{gap}"


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
        one = f"<{name}>[^<]{{0,256}}+</{name}>{gap}"
        return one if field.is_scattered else f"((?:{one}){{1,{MAX_REPEATED}}}{POSSESSIVE})"
    value, section = f"[^<]{{0,{MAX_VALUE_CHARS}}}+", rf"<!\[CDATA\[{SHORT_SECTION}\]\]>"
    if field.children:
        tags = [f"{kind}:{child}" for child in field.children]
        children = [f"<{tag}>{section if tag in sections else value}</{tag}>{gap}" for tag in tags]
        inside = f"(?:{'|'.join(children)}){{0,{len(children)}}}{POSSESSIVE}"
        return f"<{name}>{gap}({inside})</{name}>{gap}"
    attributes = f"({ATTRIBUTES})" if field.has_attributes else ""
    if name in sections:
        return rf"<{name}{attributes}><!\[CDATA\[({SHORT_SECTION})\]\]></{name}>{gap}"
    inside = f">({value})</{name}>"
    return f"<{name}{attributes}{f'(?:{inside}|{gap}/>)' if may_be_empty else inside}{gap}"


def optional(pattern: str) -> str:
    """A pattern that may match nothing; as a branch, which is faster than `?`."""
    return f"(?:{pattern}|)"


def in_any_order(patterns: Mapping[int, str]) -> str:
    """Each of the patterns at most once, by the number of a group that it always has."""
    return _choices([_once(group, pattern) for group, pattern in patterns.items()], len(patterns))


def _once(group: int, pattern: str) -> str:
    return f"(?({group})(?!)){pattern}"


def _choices(patterns: Collection[str], most: int) -> str:
    """Up to so many matches of any of the patterns.

    Not possessive, because the engine fails on groups in that.
    """
    return f"(?:{'|'.join(patterns)}){{1,{most}}}"


def required(group: int) -> str:
    """A pattern that matches nothing, and only if the group of this number has matched."""
    return f"(?({group})|(?!))"


_find_items = re.compile(r"<(image|news|video|xhtml):(?:image|news|video|link)[ \t\n>]").findall


class Extensions:
    """The extensions of one document, whose patterns are learned from its first items.

    What is not in the usual spelling is left to the strict parser and `extensions.py`, which must
    return the same extras.
    """

    def __init__(self, prefixes: Collection[str]) -> None:
        """`prefixes` are those that the root of the document declares."""
        self._readers: dict[str, Items | Links] = {"xhtml": Links()} if "xhtml" in prefixes else {}
        kinds = [kind for kind in ("image", "news", "video") if kind in prefixes]
        self._readers.update({kind: Items(kind) for kind in kinds})
        known = "|".join(self._readers)
        self.block = f"(?:</?(?:{known}):[^<]*+)" if known else None
        # At most how many items of each kind an entry has, in their order.
        self._counts: dict[str, int] = {}

    def learn_slots(self, text: str) -> tuple[Slots, ...] | None:
        """The items that the entries of a text have; None if no pattern can express them."""
        for entry in text.split("<url>")[1:301]:
            counts = {kind: len([*items]) for kind, items in groupby(_find_items(entry))}
            order = [*self._counts]
            merge_order(order, [*counts])
            self._counts = {
                kind: max(self._counts.get(kind, 0), counts.get(kind, 0)) for kind in order
            }
        slots = [self._slots(kind, count, text) for kind, count in self._counts.items()]
        width = sum(one.count * one.width for one in slots)
        # So many values of the maximum length are still below the limits of `extensions.py`.
        return tuple(slots) if width <= 48 and all(map(is_usual, slots)) else None

    def _slots(self, kind: str, count: int, text: str) -> Slots:
        reader = self._readers.get(kind)
        if reader is None:
            return Slots(kind, count)
        reader.learn(text)
        # A power of two, so that documents share patterns; all pages have the same languages.
        size = count if kind == "xhtml" else 1 << (count - 1).bit_length()
        return Slots(kind, size, reader.shape)

    def read_items(
        self, slots: Slots, columns: list[list[str]], sections: Collection[str]
    ) -> list[Extras] | None:
        """The items of one kind from their columns; None if the parser must read them."""
        return self._readers[slots.kind].read(columns, slots.shape, sections)


def extras_of_entries(found: Mapping[str, ItemsOfEntries]) -> list[Extras | None] | None:
    """Distribute the extension items over their entries; None if the parser must read them.

    Empty if there are no items.
    """
    if not found:
        return []
    lists = {"image": "images", "video": "videos", "xhtml": "alternates"}
    columns: dict[str, Sequence[Any]] = {}
    for kind, (items, counts) in found.items():
        column = _column(kind, items, counts)
        if column is None:
            return None
        columns[lists.get(kind, kind)] = column
    return [row or None for row in rows_of(columns)]


def _column(kind: str, items: list[Extras], counts: list[int]) -> Sequence[Any] | None:
    most, rest = max(counts), iter(items)
    if kind == "news":
        return [next(rest) if count else None for count in counts] if most == 1 else None
    if most == min(counts):
        return [items[at : at + most] for at in range(0, len(items), most)]
    return [list(islice(rest, count)) for count in counts]


class Items:
    """The images, news or videos of one document.

    The pattern is made from the fields that they have, in their order, or in any order if that
    changes. Fields that repeat, have attributes or contain others are read one by one.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._order = FieldOrder(kind)

    @property
    def shape(self) -> Shape:
        """The fields that the items have, as far as they are known."""
        return Shape(self._order.fields, in_any_order=self._order.changes)

    def learn(self, text: str) -> None:
        """Add the fields of the items in a text to those known."""
        self._order.learn(text)

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


_find_values = re.compile(r"<[^/>]++>([^<]*+)").findall


def _lists(column: list[str]) -> list[Any] | None:
    if _has_long_text(column):
        return None
    values = iter(clean(_find_values("".join(column))))
    return [raw and list(islice(values, raw.count("</"))) for raw in column]


def _repeat_too_often(fields: Iterable[Field], table: Mapping[str, list[Any]]) -> bool:
    """Whether an item has so many fields that repeat, of all names, that it may reach a limit."""
    repeated = [field for field in fields if field.is_repeated]
    if len(repeated) == 1 and not repeated[0].is_scattered:
        # The pattern allows no more of them.
        return False
    counts = (map(len, table[field.name]) for field in repeated)
    return max(map(sum, zip(*counts, strict=True)), default=0) > MAX_REPEATED


_find_named_values = re.compile(r"<[^/:]++:([^/>]++)>([^<]*+)").findall


def _children(raw: str) -> Extras | None:
    """The fields inside a field; cached if short, since news have the same in all entries."""
    children = _cached_children(raw) if len(raw) <= MAX_CACHED_CHARS else _read_children(raw)
    return None if children is None else children.copy()


def _read_children(raw: str) -> Extras | None:
    plain = without_sections(raw)
    if plain is None:
        return None
    pairs = _find_named_values(plain)
    if len(dict(pairs)) != len(pairs):
        return None
    values = clean([value for _, value in pairs])
    found = {name: value for (name, _), value in zip(pairs, values, strict=True) if value}
    return in_order(found)


_cached_children = lru_cache(maxsize=256)(_read_children)
_find_attributes = re.compile(r'([A-Za-z_]++)="([^"]*+)"').findall


def _attribute_columns(name: str, raws: list[str]) -> dict[str, list[str]] | None:
    different = set(raws)
    if max(map(len, different), default=0) > MAX_CACHED_CHARS:
        return None
    known = {raw: _attributes(name, raw) if raw else {} for raw in different}
    columns: dict[str, list[str]] = {}
    for pairs in known.values():
        if pairs is None or "" in pairs.values() or len(columns) > 16:
            return None
        columns.update({key: [] for key in pairs})
    for key in columns:
        values = {raw: (pairs or {}).get(key, "") for raw, pairs in known.items()}
        columns[key] = list(map(values.__getitem__, raws))
    return columns


@lru_cache(maxsize=256)
def _attributes(name: str, raw: str) -> dict[str, str] | None:
    pairs = _find_attributes(raw)
    values = {f"{name}_{key.lower()}": decode(value) for key, value in pairs}
    # Twice the same name is not XML, and some are not attributes.
    usual = len(values) == len(pairs) and not any(key.lower().startswith("xml") for key, _ in pairs)
    return values if usual else None


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
        items = [item.partition(f"</{tag}")[0] for item in text.split(f"<{tag}")[1:301]]
        # Most items have the same tags.
        for tags in dict.fromkeys(tuple(_tags(self.kind).findall(item)) for item in items):
            seen = _fields_of(tags[:256])
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


def _is_usual(fields: Collection[Field]) -> bool:
    """Whether a pattern can be built for these fields."""
    return sum(1 + len(one.children) for one in fields) <= 32 and not any(
        (one.is_repeated and one.children)
        or one.has_attributes
        or REPEATED_FIELDS.intersection(one.children)
        for one in fields
        if one.is_repeated or one.children
    )


def merge_order(order: list[str], names: list[str]) -> None:
    """Insert the names that are new, each after the one that it follows."""
    place = 0
    for name in names:
        if name not in order:
            order.insert(place, name)
        place = order.index(name) + 1


GAP = r"[ \t\n]++"

_find_link = re.compile(rf'<xhtml:link((?:{GAP}[a-z]++="[^"<]*+")+){ANY_XML_WHITE_SPACE}/?>').search
# With the value, in which a search for names would begin anew at each letter.
_find_attribute_names = re.compile(rf'{GAP}([a-z]++)="[^"]*+"').findall


class Links:
    """The `<xhtml:link>` tags of one document; all have the attributes in one order."""

    def __init__(self) -> None:
        # Of the attributes; empty while unknown.
        self._order: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """The attributes of the links, as far as they are known."""
        return Shape(attributes=self._order)

    def learn(self, text: str) -> None:
        self._order = self._order or _order_of_first(text)

    def read(
        self, columns: list[list[str]], shape: Shape, _sections: Collection[str] = ()
    ) -> list[Extras] | None:
        """The links of this shape from their two columns; None for the strict parser."""
        first, second = columns
        if not first or not _are_usual(first) or not _are_usual(second):
            return None
        if shape.attributes.index("href") < shape.attributes.index("hreflang"):
            first, second = second, first
        pairs = zip(clean(first), clean(second), strict=True)
        return [{"href": href, "hreflang": language} for language, href in pairs]


def _order_of_first(text: str) -> tuple[str, ...]:
    first = _find_link(text)
    names = _find_attribute_names(first[1]) if first else ()
    return tuple(names) if sorted(names) == ["href", "hreflang", "rel"] else ()


def link_pattern(order: tuple[str, ...]) -> str:
    """The pattern of an `<xhtml:link>` with its attributes in this order, as text."""
    value = f'"([^"]{{1,{MAX_VALUE_CHARS}}}+)"'
    values = {"rel": 'rel="alternate"', "href": f"href={value}", "hreflang": f"hreflang={value}"}
    attributes = "".join(GAP + values[name] for name in order)
    return f"<xhtml:link{attributes}{ANY_XML_WHITE_SPACE}(?:/>|></xhtml:link>)"


def _are_usual(values: list[str]) -> bool:
    joined = "".join(values)
    # XML reads these inside an attribute as something else.
    return not any(character in joined for character in "<\t\n")


_split_at_sections = re.compile(
    rf"<!(?:--([^-]*+(?:-[^-]++)*{POSSESSIVE})-->"
    rf"|\[CDATA\[([^\]]*+(?:\](?!\]>)[^\]]*+)*{POSSESSIVE})\]\]>)"
).split
_begins_with_tag = re.compile(f"{ANY_XML_WHITE_SPACE}<").match
_begins_with_end_tag = re.compile(f"{ANY_XML_WHITE_SPACE}</").match


def has_sections(text: str) -> bool:
    """Whether a text has anything that looks like a comment or a CDATA section."""
    # The single character first, since a search for it is several times as fast.
    return "!" in text and "<!" in text


def without_sections(text: str) -> str | None:
    """The same content without comments and CDATA sections; None for the strict parser.

    Comments are left out and CDATA is escaped, both only in front of a tag: then neither can stand
    inside a tag, and the rest means the same without them. Whatever is left of a `<!` in the text
    has no place in any pattern, so the document leaves the fast path.
    """
    if not has_sections(text):
        return None if "]" in text and CDATA_END in text else text
    # Every section that begins has an end, so that no search for one runs to the end in vain.
    if text.rfind(CDATA_END) < text.rfind(CDATA_START):
        return None
    pieces = _split_at_sections(text)
    comments, contents, behind = pieces[1::3], pieces[2::3], pieces[3::3]
    if not contents or not (
        _are_allowed(comments, contents, text) and _are_in_place(contents, behind)
    ):
        return None
    pieces[1::3] = [""] * len(comments)
    pieces[2::3] = _escaped(contents)
    plain = "".join(pieces)
    return None if "]" in plain and CDATA_END in plain else plain


def _are_allowed(comments: list[str | None], contents: list[str | None], text: str) -> bool:
    within = "".join(filter(None, comments + contents))
    longest = max(map(len, filter(None, comments)), default=0)
    # Shorter than any tag with too many attributes, for which the strict parser looks everywhere.
    return longest <= 1000 and not ("<" in within and has_extreme_tag(text))


def _are_in_place(contents: list[str | None], behind: list[str]) -> bool:
    if None not in contents:
        return all(map(_begins_with_end_tag, behind))
    in_text = compress(behind, [content is not None for content in contents])
    return all(map(_begins_with_tag, behind)) and all(map(_begins_with_end_tag, in_text))


def _escaped(contents: list[str | None]) -> list[str]:
    """The content of CDATA sections as text, nothing in the places of comments."""
    joined = BETWEEN.join([content or "" for content in contents])
    for character, reference in ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"):
        if character in joined:
            joined = joined.replace(character, reference)
    return joined.split(BETWEEN)


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
    # All that XML allows and `str.strip` takes for white space is, except for this.
    if "\x85" in joined:
        return [value.strip(WHITE_SPACE) for value in values]
    return list(map(str.strip, values))


def rows_of(table: Mapping[str, Sequence[Any]]) -> list[Extras]:
    """A dictionary for each row of the columns, in order, without values absent or empty."""
    table = in_order(dict(table))
    full = dict(takewhile(lambda named: all(named[1]), table.items()))
    rows = _full_rows(tuple(full), tuple(full.values()), len(next(iter(table.values()))))
    for name, column in islice(table.items(), len(full), None):
        for row, value in zip(rows, column, strict=True):
            if value:
                row[name] = value
    return rows


def _full_rows(
    names: tuple[str, ...], columns: tuple[Sequence[Any], ...], size: int
) -> list[Extras]:
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
            one, two, three, four, *others = names
            firsts = zip(*columns[:4], strict=True)
            rows = [{one: a, two: b, three: c, four: d} for a, b, c, d in firsts]
            for name, column in zip(others, columns[4:], strict=True):
                for row, value in zip(rows, column, strict=True):
                    row[name] = value
            return rows
