"""Entries by template, for documents whose entries have no common pattern.

To an XML parser, two entries that differ only in the text of their elements and in the addresses of
their links have the same structure. So the strict parser reads one of them with placeholders
instead of values, and the result is the template for all others with the same markup. Text must
have neither comments nor CDATA sections (`fast_path_sections.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from siteatlas.scanner.reading.formats.extensions import MAX_VALUE_CHARS
from siteatlas.scanner.reading.formats.fast_path_columns import clean
from siteatlas.scanner.reading.formats.salvage import decode
from siteatlas.scanner.reading.tally import Extras, RawEntries

# So many characters of text, however they are used, are below the limits of `extensions.py`.
MAX_CHARS = 72 * 1024
# A template costs more than reading an entry, so that there must be fewer of them than entries.
FREE_TEMPLATES, ENTRIES_PER_TEMPLATE = 64, 8
# Templates are kept as long as the document is read, with the markup that they are for.
MAX_SAMPLE_CHARS = 1024 * 1024
BETWEEN = "\x00"
ENTRY_BETWEEN = f"{BETWEEN}url"
INSTRUCTION = "<?"
HREF, HREF_MARK = ' href="', "\x01"
# Not in attributes, where XML reads these as something else.
NOT_IN_HREF = "<\t\n"
PLACEHOLDER = "\ue000"
PLACE = re.compile(f"{PLACEHOLDER}([0-9]+){PLACEHOLDER}")
FIELDS = ("loc", "lastmod", "changefreq", "priority")

Row = tuple[Any, ...]
# The four values and the extras of each entry in a text; None if the parser finds anything odd.
ReadSamples = Callable[[str], list[tuple[list[str], Extras | None]] | None]


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
        """The different markups that are not known, in their order."""
        return [markup for markup in dict.fromkeys(self.markups) if markup not in known]


class Templates:
    """The templates of one document."""

    def __init__(self, read_samples: ReadSamples) -> None:
        self._read_samples = read_samples
        # By the markup of an entry, and by its markup and the indexes of empty values.
        self._templates: dict[str | tuple[str, tuple[int, ...]], Template | None] = {}
        self._entries = 0
        self._sample_chars = 0

    def read(self, text: str) -> RawEntries | None:
        """The entries of a text; None if the strict parser must read it."""
        if len(text) > MAX_CHARS or self._sample_chars > MAX_SAMPLE_CHARS:
            return None
        parts = _take_apart(text)
        if parts is None:
            return None
        self._entries += len(parts.markups)
        self._learn({markup: _sample(markup) for markup in parts.new_markups(self._templates)})
        return self._build(parts)

    def _build(self, parts: _Parts) -> RawEntries | None:
        """The entries from their markup and values; None for the strict parser."""
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
        limit = FREE_TEMPLATES + self._entries / ENTRIES_PER_TEMPLATE
        if not samples or len(self._templates) > limit:
            return
        read = self._read_samples("".join(samples.values()))
        if read is not None and len(read) == len(samples):
            for (key, sample), result in zip(samples.items(), read, strict=True):
                self._templates[key] = _made_template(sample, *result)


def _take_apart(text: str) -> _Parts | None:
    """Separate the values of a text from its markup; None if that is not possible."""
    cut = _without_hrefs(text)
    if cut is None or PLACEHOLDER in text or INSTRUCTION in text:
        return None
    rest, hrefs = cut
    heads, _, values = zip(*[token.rpartition(">") for token in rest.split("</")], strict=True)
    joined = BETWEEN.join(values)
    if "<" in joined or HREF_MARK in joined or max(map(len, values)) > MAX_VALUE_CHARS:
        return None
    markup = BETWEEN.join(heads)
    if not markup.endswith(ENTRY_BETWEEN):
        return None
    markups = markup[: -len(ENTRY_BETWEEN)].split(f"{ENTRY_BETWEEN}>")
    return _Parts(markups, clean(list(values)), clean(hrefs))


def _without_hrefs(text: str) -> tuple[str, list[str]] | None:
    """The text with a mark for each `href`, and their values; None if one is not usual."""
    first, *others = text.split(HREF)
    if not others:
        return text, []
    hrefs, quotes, rests = zip(*[other.partition('"') for other in others], strict=True)
    joined = "".join(hrefs)
    unusual = "" in hrefs or "" in quotes or any(char in joined for char in NOT_IN_HREF)
    if unusual or max(map(len, hrefs)) > MAX_VALUE_CHARS:
        return None
    return HREF_MARK.join((first, *rests)), list(hrefs)


def _repeats_field(sample: str) -> bool:
    """Whether an entry may have a field twice, of which the first counts that is not empty."""
    return any(sample.count(f"<{name}") > 1 for name in FIELDS)


def _hides_placeholder(sample: str) -> bool:
    """Whether an entry has a character reference in its markup that the parser takes for one."""
    return "&" in sample and decode(sample).count(PLACEHOLDER) != sample.count(PLACEHOLDER)


def _sample(markup: str, empty: tuple[int, ...] = ()) -> str:
    """An entry with this markup and placeholders, except for the values that are empty."""
    heads = markup.split(BETWEEN)
    texts = ["" if at in empty else _placeholder(at) for at in range(len(heads))]
    entry = "</".join(f"{head}>{text}" for head, text in zip(heads, texts, strict=True)) + "</url>"
    first, *others = entry.split(HREF_MARK)
    links = (f'{HREF}{_placeholder(len(heads) + at)}"{other}' for at, other in enumerate(others))
    return first + "".join(links)


def _placeholder(place: int) -> str:
    """What stands for the value of this index while a template is made."""
    return f"{PLACEHOLDER}{place}{PLACEHOLDER}"


def _made_template(sample: str, fields: list[str], extras: Extras | None) -> Template | None:
    """The template from what the strict parser read of a sample; None if there can be none."""
    if _repeats_field(sample) or _hides_placeholder(sample):
        return None
    if extras and "resourcesync" in extras:
        return None
    leaves = [*fields, *_leaves(extras)]
    texts = dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, str) and PLACEHOLDER in leaf)
    matches = [PLACE.fullmatch(text) for text in texts]
    places = [int(match[1]) for match in matches if match]
    if len(places) != len(texts) or not PLACE.fullmatch(fields[0]):
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


def _leaves(value: Any) -> list[Any]:
    """All that the extras of an entry consist of, besides dictionaries and lists."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for inner in value for leaf in _leaves(inner)]
    return [value]


def _getter(indexes: list[int]) -> Callable[[Sequence[Any]], Row]:
    """What returns the values of these indexes as a tuple."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return lambda row: tuple(row[index] for index in indexes)


def _builder(value: Any, indexes: dict[Any, int]) -> Callable[[Row], Any]:
    """What builds a part of the extras from the values of an entry."""
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
