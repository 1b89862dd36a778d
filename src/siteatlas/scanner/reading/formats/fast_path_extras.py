"""Images, videos, news and language links in their usual spelling, read by patterns.

A block is all that an entry contains besides its four fields, in one place. It is read kind by
kind: every item that is found is taken out, and when all are, no `<` may be left. What is spelled
in any other way, or is large enough to reach a limit, is left to the strict parser and
`extensions.py`, which must return the same extras.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

from siteatlas.scanner.reading.formats.fast_path_columns import rows_of
from siteatlas.scanner.reading.formats.fast_path_fields import merge_order
from siteatlas.scanner.reading.formats.fast_path_items import Items
from siteatlas.scanner.reading.formats.fast_path_layout import MAX_GROUPS, Slots, is_usual
from siteatlas.scanner.reading.formats.fast_path_links import Links
from siteatlas.scanner.reading.tally import Extras

# So many characters hold fewer items than `extensions.py` allows for an entry.
MAX_BLOCK_CHARS = 32 * 1024
# Stands between the blocks of two entries: a character that XML cannot hold.
BETWEEN = "<\x00"
# Stand where items were taken out, so that what is around them never joins; one for each kind.
TAKEN_OUT = {"image": "<\x01", "news": "<\x02", "video": "<\x03", "xhtml": "<\x04"}
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

    def read(self, blocks: Blocks) -> Sequence[Extras | None] | None:
        """The extras of each entry, empty if none has any; None if the parser must read them."""
        if not blocks.tag_count:
            return ()
        taken: dict[str, list[Extras]] = {}
        if not blocks.are_large:
            for kind, reader in self._readers.items():
                if blocks.have(reader.tag):
                    items = blocks.take(kind, reader)
                    if items is None:
                        return None
                    taken[kind] = items
        if blocks.tag_count:
            return None
        return extras_of_entries(
            {kind: (items, blocks.counts(kind)) for kind, items in taken.items()}
        )


class Blocks:
    """The blocks of some entries, of which items are taken out; an absent one is empty.

    `tag_count` is the number of `<` that are left.
    """

    def __init__(self, blocks: Sequence[str]) -> None:
        text = BETWEEN.join(blocks)
        self._marks = max(len(blocks) - 1, 0)
        self._text = text
        self.tag_count = text.count("<") - self._marks
        self.are_large = max(map(len, blocks), default=0) > MAX_BLOCK_CHARS

    def have(self, tag: str) -> bool:
        """Whether anything of this name is left."""
        return f"<{tag}" in self._text

    def take(self, kind: str, reader: Items | Links) -> list[Extras] | None:
        """All items of one kind; None if the strict parser must read them."""
        taken = reader.take(self._text)
        if taken is None:
            return None
        items, around = taken
        self._text = TAKEN_OUT[kind].join(around)
        self._marks += len(items)
        self.tag_count = self._text.count("<") - self._marks
        return items

    def counts(self, kind: str) -> list[int]:
        """How many items of this kind were taken out of each block."""
        mark = TAKEN_OUT[kind]
        return [block.count(mark) for block in self._text.split(BETWEEN)]


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
