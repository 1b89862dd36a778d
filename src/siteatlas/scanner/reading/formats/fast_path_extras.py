"""Images, videos, news and language links in their usual spelling, read by patterns.

Items are taken out of the text kind by kind, and a mark is left where each of them was. The marks
of an entry, in one place, are its block. What is spelled in any other way is left to the strict
parser and `extensions.py`, which must return the same extras.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from siteatlas.scanner.reading.formats.fast_path_columns import rows_of
from siteatlas.scanner.reading.formats.fast_path_fields import merge_order
from siteatlas.scanner.reading.formats.fast_path_items import Items
from siteatlas.scanner.reading.formats.fast_path_layout import MAX_GROUPS, Slots, is_usual
from siteatlas.scanner.reading.formats.fast_path_links import Links
from siteatlas.scanner.reading.tally import Extras

# Stand where items were taken out, with characters that XML cannot hold; one for each kind.
MARKS = {"image": "<\x01", "news": "<\x02", "video": "<\x03", "xhtml": "<\x04"}
MARK = r"(?:<[\x01-\x04][^<]*+)"
LISTS = {"image": "images", "video": "videos", "xhtml": "alternates"}
MAX_ENTRIES_LEARNED = 300
ITEM = re.compile(r"<(image|news|video|xhtml):(?:image|news|video|link)[ \t\n>]")

# The items of one kind, and how many of them each entry has.
ItemsOfEntries = tuple[list[Extras], list[int]]


class Extensions:
    """The extensions of one document, whose patterns are learned from its first items."""

    def __init__(self, prefixes: Collection[str]) -> None:
        """`prefixes` are those that the root of the document declares."""
        # Links first: without them, there is much less text to search for the others.
        self._readers: dict[str, Items | Links] = {"xhtml": Links()} if "xhtml" in prefixes else {}
        kinds = [kind for kind in ("image", "news", "video") if kind in prefixes]
        self._readers.update({kind: Items(kind) for kind in kinds})
        known = "|".join(self._readers)
        self.block = f"(?:</?(?:{known}):[^<]*+)" if known else None
        # At most how many items of each kind an entry has, in their order.
        self._counts: dict[str, int] = {}

    def learn_slots(self, text: str) -> tuple[Slots, ...] | None:
        """The items that the entries of a text have; None if no pattern can express them."""
        for entry in text.split("<url>")[1 : MAX_ENTRIES_LEARNED + 1]:
            counts = {kind: len([*items]) for kind, items in groupby(ITEM.findall(entry))}
            order = [*self._counts]
            merge_order(order, [*counts])
            self._counts = {
                kind: max(self._counts.get(kind, 0), counts.get(kind, 0)) for kind in order
            }
        slots = [self._slots(kind, count, text) for kind, count in self._counts.items()]
        width = sum(one.count * one.width for one in slots)
        return tuple(slots) if width <= MAX_GROUPS and all(map(is_usual, slots)) else None

    def _slots(self, kind: str, count: int, text: str) -> Slots:
        """The slots for the items of one kind, with the fields that they have in a text."""
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

    def take(self, text: str) -> TakenItems | None:
        """All items of a text; None if the strict parser must read them."""
        items: dict[str, list[Extras]] = {}
        for kind, reader in self._readers.items():
            if f"<{reader.tag}" in text:
                taken = reader.take(text)
                if taken is None:
                    return None
                items[kind], around = taken
                text = MARKS[kind].join(around)
        return TakenItems(items, text)


@dataclass(frozen=True, slots=True)
class TakenItems:
    """The items of each kind, and the text that they were taken out of, with marks instead."""

    items: Mapping[str, list[Extras]]
    text: str

    def by_entry(self, blocks: Sequence[str]) -> list[Extras | None] | None:
        """The extras of the entries that have these blocks of marks; None for the parser.

        Empty if there are no items.
        """
        counts = {kind: [block.count(MARKS[kind]) for block in blocks] for kind in self.items}
        return extras_of_entries({kind: (self.items[kind], counts[kind]) for kind in self.items})


def _column(kind: str, items: list[Extras], counts: list[int]) -> Sequence[Any] | None:
    """The items of each entry, by entry; None if an entry has more than one news item."""
    most, rest = max(counts), iter(items)
    if kind == "news":
        return [next(rest) if count else None for count in counts] if most == 1 else None
    if most == min(counts):
        return [items[at : at + most] for at in range(0, len(items), most)]
    return [list(islice(rest, count)) for count in counts]


def extras_of_entries(found: Mapping[str, ItemsOfEntries]) -> list[Extras | None] | None:
    """Distribute the extension items over their entries; None if the parser must read them.

    Empty if there are no items.
    """
    if not found:
        return []
    columns: dict[str, Sequence[Any]] = {}
    for kind, (items, counts) in found.items():
        column = _column(kind, items, counts)
        if column is None:
            return None
        columns[LISTS.get(kind, kind)] = column
    return [row or None for row in rows_of(columns)]
