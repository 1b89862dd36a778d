"""Whole entries of the fast path: one pattern matches an entry together with its extensions.

The pattern follows the layout of the document (`fast_path_layout.py`) and returns the values of all
entries column by column. Entries that it does not match are left to the caller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, islice

from siteatlas.scanner.reading.entries import PLAIN_URL
from siteatlas.scanner.reading.formats.fast_path_columns import column_of, has_section_end
from siteatlas.scanner.reading.formats.fast_path_extras import (
    Extensions,
    ItemsOfEntries,
    extras_of_entries,
)
from siteatlas.scanner.reading.formats.fast_path_layout import Layout, Slots, entry_pattern
from siteatlas.scanner.reading.formats.fast_path_order import EXTRAS, order_of_first_entry
from siteatlas.scanner.reading.formats.fast_path_sections import CDATA_START
from siteatlas.scanner.reading.formats.salvage import decode_url
from siteatlas.scanner.reading.tally import Extras, RawEntries
from siteatlas.scanner.reading.white_space import XML_WHITE_SPACE

MAX_TIMES_LEARNED = 8
# In a row; then the document is not written in this way.
MAX_MISSES = 2
MAX_LEARNED_CHARS = 64 * 1024
ANY_LOC = r"[^<]*+"
# No layout has more or longer ones.
MAX_SECTIONS = 64
SECTION_TAG = re.compile(r"<([a-z_:]{1,48}+)[^<>]*+>\s*+<!\[CDATA\[")


class WholeEntries:
    """The entries of one document, whose layout is learned from the first ones."""

    def __init__(self, extensions: Extensions) -> None:
        self._extensions = extensions
        self._layout: Layout | None = None
        self._sections: frozenset[str] = frozenset()
        self._loc = PLAIN_URL
        self._times_learned = 0
        self._misses = 0
        self._misses_with_sections = 0

    def read(self, text: str) -> RawEntries | None:
        """The entries of a text without sections; None if any of it does not match."""
        if self._misses >= MAX_MISSES:
            return None
        entries = self._read(text, self._layout)
        if entries is None and self._times_learned < MAX_TIMES_LEARNED:
            self._times_learned += 1
            entries = self._read_as_learned(text)
        self._misses = 0 if entries else self._misses + 1
        return entries

    def _read_as_learned(self, text: str) -> RawEntries | None:
        """The entries of a text by the layout that it has, if need be with parts in any order."""
        known, learned = self._layout, self._learn(text)
        if learned is None:
            return None
        layouts = [learned, learned.with_any_order()]
        if known is not None and known.in_any_order:
            del layouts[0]
        for layout in layouts:
            if layout != known and (entries := self._read(text, layout)) is not None:
                self._layout = layout
                return entries
        self._layout = layouts[0]
        return None

    def read_with_sections(self, text: str) -> RawEntries | None:
        """The entries of a text with CDATA sections; None if any of it does not match."""
        tried_enough = self._misses_with_sections >= MAX_MISSES
        if self._layout is None or not self._sections or tried_enough:
            return None
        entries = self._read(text, replace(self._layout, sections=self._sections))
        self._misses_with_sections = 0 if entries else self._misses_with_sections + 1
        return entries

    def learn_sections(self, text: str) -> None:
        """Learn which tags of a text have CDATA."""
        if CDATA_START in text and len(self._sections) < MAX_SECTIONS:
            names = SECTION_TAG.findall(text, 0, MAX_LEARNED_CHARS)
            known = dict.fromkeys([*self._sections, *names])
            self._sections = frozenset(islice(known, MAX_SECTIONS))

    def _learn(self, text: str) -> Layout | None:
        """The layout of the entries in a text without sections; None if there is no pattern."""
        order = order_of_first_entry(text, self._extensions.block)
        if EXTRAS not in order:
            return Layout(order) if order else None
        slots = self._extensions.learn_slots(text[:MAX_LEARNED_CHARS])
        return None if slots is None else Layout(order, slots)

    def _read(self, text: str, layout: Layout | None) -> RawEntries | None:
        """The entries of a text with this layout, with plain or any URLs."""
        if layout is None or self._misses >= MAX_MISSES:
            return None
        entries = self._match(text, layout)
        if entries is None and self._loc is PLAIN_URL:
            self._loc = ANY_LOC
            entries = self._match(text, layout)
            if entries is None:
                self._loc = PLAIN_URL
        return entries

    def _match(self, text: str, layout: Layout) -> RawEntries | None:
        """Match all entries of a text; None if any of it but blanks was not matched."""
        pattern = entry_pattern(layout, self._loc)
        width = pattern.groups + 1
        pieces = pattern.split(text)
        if len(pieces) == 1 or "".join(pieces[::width]).strip(XML_WHITE_SPACE):
            return None
        groups = [pieces[group::width] for group in range(1, width)]
        extras = self._extras(groups, layout)
        if extras is None:
            return None
        columns = (column_of(groups[place]) for place in layout.field_places)
        locs, lastmods, changefreqs, priorities = columns
        entries = RawEntries(locs, lastmods, changefreqs, priorities, extras)
        if layout.sections and has_section_end(entries.locs):
            return None
        if "loc" not in layout.sections:
            entries.locs_are_plain = self._decode_locs(entries, text)
        return entries

    def _decode_locs(self, entries: RawEntries, text: str) -> bool:
        """Replace the references in the URLs; whether these are known to be plain."""
        is_plain = self._loc is PLAIN_URL
        if "&" in text:
            locs = "\n".join(entries.locs)
            if is_plain and locs.count("&") == locs.count("&amp;"):
                entries.locs = locs.replace("&amp;", "&").split("\n")
            else:
                entries.locs = [decode_url(loc) for loc in entries.locs]
                is_plain = False
        return is_plain

    def _extras(
        self, groups: Sequence[list[str]], layout: Layout
    ) -> Sequence[Extras | None] | None:
        """The extras of each entry, empty if none has any; None if the parser must read them."""
        found: dict[str, ItemsOfEntries] = {}
        for slots, place in layout.slot_places:
            columns, counts = _items_of_slots(groups, place, slots)
            if not any(counts):
                continue
            items = self._extensions.read_items(slots, columns, layout.sections)
            if items is None:
                return None
            found[slots.kind] = items, counts
        return extras_of_entries(found)


def _items_of_slots(
    groups: Sequence[list[str]], start: int, slots: Slots
) -> tuple[list[list[str]], list[int]]:
    """The values of all items of a kind, group by group, and how many items each entry has."""
    columns = [
        _interleaved([groups[start + slot * slots.width + group] for slot in range(slots.count)])
        for group in range(slots.width)
    ]
    required = columns[slots.required_group]
    if None not in required:
        return columns, [slots.count] * (len(required) // slots.count)
    present = [value is not None for value in required]
    counts = [sum(entry) for entry in zip(*[iter(present)] * slots.count, strict=True)]
    return [list(compress(column, present)) for column in columns], counts


def _interleaved(columns: Sequence[list[str]]) -> list[str]:
    """The first values of all columns, then the second ones, and so on."""
    if len(columns) == 1:
        return columns[0]
    values = [""] * (len(columns) * len(columns[0]))
    for index, column in enumerate(columns):
        values[index :: len(columns)] = column
    return values
