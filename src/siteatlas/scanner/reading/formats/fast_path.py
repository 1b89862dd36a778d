"""Reads the usual shapes of `<url>` entries with regular expressions, far faster than a parser.

The usual entries of a document are matched whole, with CDATA and extensions. For others, comments
and CDATA are turned into plain text first; what has no common pattern is read by `Templates`. A
chunk of text is accepted only when every `<` in it belongs to a tag that was matched. A document
that leaves the fast path continues with the strict parser from `rest`, the exact place where the
fast path ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice
from operator import itemgetter
from typing import Any

from siteatlas.scanner.reading.entries import (
    PLAIN_URL,
    XML_WHITE_SPACE,
    Extras,
    RawEntries,
)
from siteatlas.scanner.reading.formats.extensions import MAX_VALUE_CHARS
from siteatlas.scanner.reading.formats.fast_path_items import (
    BETWEEN,
    CDATA_START,
    EXTRAS,
    USUAL_ORDER,
    Extensions,
    ItemsOfEntries,
    Layout,
    Slots,
    clean,
    column_of,
    entry_pattern,
    extras_of_entries,
    has_section_end,
    has_sections,
    order_of_first_entry,
    without_sections,
)
from siteatlas.scanner.reading.formats.salvage import decode, decode_url

MAX_REST_CHARS = 256 * 1024
# In a row; then the document is not written in this way.
MAX_MISSES = 2
MAX_LEARNED_CHARS = 64 * 1024
# Templates are kept as long as the document is read, with the markup that they are for.
MAX_SAMPLE_CHARS = 1024 * 1024
ENTRY_END = "</url>"

Row = tuple[Any, ...]
# The four values and the extras of each entry in a text; None if the parser finds anything odd.
ReadSamples = Callable[[str], list[tuple[list[str], Extras | None]] | None]

_find_section_tags = re.compile(r"<([a-z_:]{1,48}+)[^<>]*+>\s*+<!\[CDATA\[").findall


class FastPath:
    """The fast path of one document; `feed` returns None once the strict parser must continue.

    One pattern follows the layout of the document, which is learned from the first entries, and
    returns the values of all entries column by column.
    """

    def __init__(
        self,
        prefixes: Collection[str] = (),
        read_samples: ReadSamples | None = None,
    ) -> None:
        """`prefixes` are those that the root of the document declares.

        `read_samples` is the strict parser for the samples of templates.
        """
        self.rest = ""
        self._templates = None if read_samples is None else Templates(read_samples)
        self._extensions = Extensions(prefixes)
        self._layout: Layout | None = None
        self._sections: frozenset[str] = frozenset()
        self._loc = PLAIN_URL
        self._times_learned = 0
        self._misses = 0
        self._misses_with_sections = 0

    def feed(self, text: str) -> RawEntries | None:
        """The entries completed by this text, or None: then `rest` is the unread text."""
        if self.rest:
            text = self.rest + text
        end = text.rfind(ENTRY_END) + len(ENTRY_END)
        if end < len(ENTRY_END):
            self.rest = text
            return RawEntries() if len(text) <= MAX_REST_CHARS else None
        chunk = text[:end]
        if "\r" in chunk:
            # To XML, all line ends are the same.
            chunk = chunk.replace("\r\n", "\n").replace("\r", "\n")
        entries = self._read(chunk)
        self.rest = text if entries is None else text[end:]
        return entries

    def _read(self, chunk: str) -> RawEntries | None:
        if not has_sections(chunk):
            return self._read_plain(chunk)
        entries = self.match_with_sections(chunk)
        if entries is None:
            entries = self._read_plain(chunk)
            self.learn_sections(chunk)
        return entries

    def _read_plain(self, chunk: str) -> RawEntries | None:
        plain = without_sections(chunk)
        if plain is None:
            return None
        entries = self.match(plain)
        if entries is None and self._templates is not None:
            entries = self._templates.read(plain)
        return entries

    def match(self, text: str) -> RawEntries | None:
        """The entries of a text without sections; None if any of it does not match."""
        if self._misses >= MAX_MISSES:
            return None
        entries = self._match_layout(text, self._layout)
        if entries is None and self._times_learned < 8:
            self._times_learned += 1
            entries = self._match_as_learned(text)
        self._misses = 0 if entries else self._misses + 1
        return entries

    def _match_as_learned(self, text: str) -> RawEntries | None:
        """The entries of a text by the layout that it has, if need be with parts in any order."""
        known, learned = self._layout, self._learn(text)
        if learned is None:
            return None
        layouts = [learned, learned.with_any_order()]
        if known is not None and known.in_any_order:
            del layouts[0]
        for layout in layouts:
            if layout != known and (entries := self._match_layout(text, layout)) is not None:
                self._layout = layout
                return entries
        self._layout = layouts[0]
        return None

    def match_with_sections(self, text: str) -> RawEntries | None:
        """The entries of a text with CDATA sections; None if any of it does not match."""
        tried_enough = self._misses_with_sections >= MAX_MISSES
        if self._layout is None or not self._sections or tried_enough:
            return None
        entries = self._match_layout(text, replace(self._layout, sections=self._sections))
        self._misses_with_sections = 0 if entries else self._misses_with_sections + 1
        return entries

    def learn_sections(self, text: str) -> None:
        """Learn which tags of a text have CDATA."""
        # No layout has more of them.
        most = 64
        if CDATA_START in text and len(self._sections) < most:
            names = _find_section_tags(text, 0, MAX_LEARNED_CHARS)
            known = dict.fromkeys([*self._sections, *names])
            self._sections = frozenset(islice(known, most))

    def _learn(self, text: str) -> Layout | None:
        order = order_of_first_entry(text, self._extensions.block)
        if EXTRAS not in order:
            return Layout(order) if order else None
        slots = self._extensions.learn_slots(text[:MAX_LEARNED_CHARS])
        return None if slots is None else Layout(order, slots)

    def _match_layout(self, text: str, layout: Layout | None) -> RawEntries | None:
        """The entries of a text with this layout, with plain or any URLs."""
        if layout is None or self._misses >= MAX_MISSES:
            return None
        entries = self._split(text, layout)
        if entries is None and self._loc is PLAIN_URL:
            self._loc = r"[^<]*+"
            entries = self._split(text, layout)
            if entries is None:
                self._loc = PLAIN_URL
        return entries

    def _split(self, text: str, layout: Layout) -> RawEntries | None:
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
    if len(columns) == 1:
        return columns[0]
    values = [""] * (len(columns) * len(columns[0]))
    for index, column in enumerate(columns):
        values[index :: len(columns)] = column
    return values


HREF = ' href="'
HREF_MARK = "\x01"
PLACEHOLDER = "\ue000"

_match_placeholder = re.compile(f"{PLACEHOLDER}([0-9]+){PLACEHOLDER}").fullmatch


@dataclass(frozen=True, slots=True)
class Template:
    """How an entry is made from its values, `size` in the text and `links` of links.

    The functions take the values that are used and the constants, one after the other.
    """

    size: int
    links: int
    used: Callable[[Sequence[str]], Row]
    fields: Callable[[Row], Row]
    extras: Callable[[Row], Extras] | None
    constants: Row


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a text: the markup of each entry, all values, and all addresses of links."""

    markups: list[str]
    values: list[str]
    hrefs: list[str]

    def new_markups(self, known: Container[Any]) -> list[str]:
        return [markup for markup in dict.fromkeys(self.markups) if markup not in known]


class Templates:
    """Reads entries by template, for documents whose entries have no common pattern.

    To an XML parser, two entries that differ only in the text of their elements and in the
    addresses of their links have the same structure. So the strict parser reads one of them with
    placeholders instead of values, and the result is the template for all others with the same
    markup. Text must have neither comments nor CDATA sections.
    """

    def __init__(self, read_samples: ReadSamples) -> None:
        self._read_samples = read_samples
        # By the markup of an entry, and by its markup and the indexes of empty values.
        self._templates: dict[str | tuple[str, tuple[int, ...]], Template | None] = {}
        self._entries = 0
        self._sample_chars = 0

    def read(self, text: str) -> RawEntries | None:
        """The entries of a text; None if the strict parser must read it."""
        # So many characters, however they are used, are below the limits of `extensions.py`.
        if len(text) > 72 * 1024 or self._sample_chars > MAX_SAMPLE_CHARS:
            return None
        parts = _take_apart(text)
        if parts is None:
            return None
        self._entries += len(parts.markups)
        self._learn({markup: _sample(markup) for markup in parts.new_markups(self._templates)})
        return self._build(parts)

    def _build(self, parts: _Parts) -> RawEntries | None:
        rows: list[Row] = []
        extras: list[Extras | None] = []
        place = link = 0
        for markup in parts.markups:
            template = self._templates[markup]
            if template is None:
                return None
            values = parts.values[place : place + template.size]
            place += template.size
            if template.links:
                values += parts.hrefs[link : link + template.links]
                link += template.links
            row = template.used(values)
            if "" in row:
                template = self._template_without_empty(markup, values)
                if template is None:
                    return None
                row = template.used(values)
            row += template.constants
            rows.append(template.fields(row))
            extras.append(template.extras(row) if template.extras is not None else None)
        if link != len(parts.hrefs):
            return None
        locs, lastmods, changefreqs, priorities = zip(*rows, strict=True)
        return RawEntries(locs, lastmods, changefreqs, priorities, extras if any(extras) else ())

    def _template_without_empty(self, markup: str, values: list[str]) -> Template | None:
        """The template for an entry with empty values, which count as absent."""
        empty = tuple(index for index, value in enumerate(values) if not value)
        key = markup, empty
        if key not in self._templates:
            self._learn({key: _sample(markup, empty)})
        return self._templates[key]

    def _learn(self, samples: Mapping[Any, str]) -> None:
        """Make the templates of these samples, with one run of the strict parser for all."""
        self._templates.update(dict.fromkeys(samples))
        self._sample_chars += sum(map(len, samples.values()))
        # A template costs more than reading an entry, so there must be fewer of them than entries.
        limit = 64 + self._entries / 8
        if not samples or len(self._templates) > limit:
            return
        read = self._read_samples("".join(samples.values()))
        if read is not None and len(read) == len(samples):
            for (key, sample), result in zip(samples.items(), read, strict=True):
                self._templates[key] = _made_template(sample, *result)


def _take_apart(text: str) -> _Parts | None:
    cut = _without_hrefs(text)
    if cut is None or PLACEHOLDER in text or "<?" in text:
        return None
    rest, hrefs = cut
    heads, _, values = zip(*[token.rpartition(">") for token in rest.split("</")], strict=True)
    joined = BETWEEN.join(values)
    if "<" in joined or HREF_MARK in joined or max(map(len, values)) > MAX_VALUE_CHARS:
        return None
    markup = BETWEEN.join(heads)
    entry_end = f"{BETWEEN}url"
    if not markup.endswith(entry_end):
        return None
    markups = markup[: -len(entry_end)].split(f"{entry_end}>")
    return _Parts(markups, clean(list(values)), clean(hrefs))


def _without_hrefs(text: str) -> tuple[str, list[str]] | None:
    first, *others = text.split(HREF)
    if not others:
        return text, []
    hrefs, quotes, rests = zip(*[other.partition('"') for other in others], strict=True)
    joined = "".join(hrefs)
    # Not in attributes, where XML reads these as something else.
    unusual = "" in hrefs or "" in quotes or any(char in joined for char in "<\t\n")
    if unusual or max(map(len, hrefs)) > MAX_VALUE_CHARS:
        return None
    return HREF_MARK.join((first, *rests)), list(hrefs)


def _sample(markup: str, empty: tuple[int, ...] = ()) -> str:
    heads = markup.split(BETWEEN)
    texts = ["" if at in empty else _placeholder(at) for at in range(len(heads))]
    entry = "</".join(f"{head}>{text}" for head, text in zip(heads, texts, strict=True)) + "</url>"
    first, *others = entry.split(HREF_MARK)
    links = (f'{HREF}{_placeholder(len(heads) + at)}"{other}' for at, other in enumerate(others))
    return first + "".join(links)


def _placeholder(place: int) -> str:
    return f"{PLACEHOLDER}{place}{PLACEHOLDER}"


def _made_template(sample: str, fields: list[str], extras: Extras | None) -> Template | None:
    if _repeats_field(sample) or _hides_placeholder(sample):
        return None
    if extras and "resourcesync" in extras:
        return None
    leaves = [*fields, *_leaves(extras)]
    texts = dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, str) and PLACEHOLDER in leaf)
    matches = [_match_placeholder(text) for text in texts]
    places = [int(match[1]) for match in matches if match]
    if len(places) != len(texts) or not _match_placeholder(fields[0]):
        return None
    constants = [leaf for leaf in leaves if leaf not in texts]
    indexes = {leaf: index for index, leaf in enumerate([*texts, *constants])}
    return Template(
        size=sample.count("</"),
        links=sample.count(f"{HREF}{PLACEHOLDER}"),
        used=_getter(places),
        fields=_getter([indexes[value] for value in fields]),
        extras=_builder(extras, indexes) if extras else None,
        constants=tuple(constants),
    )


def _repeats_field(sample: str) -> bool:
    """Whether an entry may have a field twice, of which the first counts that is not empty."""
    return any(sample.count(f"<{name}") > 1 for name in USUAL_ORDER)


def _hides_placeholder(sample: str) -> bool:
    """Whether an entry has a character reference in its markup that the parser takes for one."""
    return "&" in sample and decode(sample).count(PLACEHOLDER) != sample.count(PLACEHOLDER)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for inner in value for leaf in _leaves(inner)]
    return [value]


def _getter(indexes: list[int]) -> Callable[[Sequence[Any]], Row]:
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return lambda row: tuple(row[index] for index in indexes)


def _builder(value: Any, indexes: dict[Any, int]) -> Callable[[Row], Any]:
    if isinstance(value, list):
        builders = [_builder(inner, indexes) for inner in value]
        return lambda row: [build(row) for build in builders]
    if not isinstance(value, dict):
        return itemgetter(indexes[value])
    names = tuple(value)
    if any(isinstance(inner, dict | list) for inner in value.values()):
        builders = [_builder(inner, indexes) for inner in value.values()]
        return lambda row: {name: build(row) for name, build in zip(names, builders, strict=True)}
    values = _getter([indexes[inner] for inner in value.values()])
    return lambda row: dict(zip(names, values(row), strict=True))
