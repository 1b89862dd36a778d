"""Reads the usual shapes of `<url>` entries with one regular expression, far faster than a parser.

Comments and CDATA are turned into plain text first (`fast_path_sections.py`). Extensions may stand
in one place of each entry: `fast_path_extras.py` reads them. A chunk of text is accepted only when
every `<` in it belongs to a tag that was matched. A document that leaves the fast path continues
with the strict parser from `rest`, the exact position where the fast path ended.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from siteatlas.scanner.reading.entries import PLAIN_URL
from siteatlas.scanner.reading.formats.fast_path_extras import Blocks, Extensions
from siteatlas.scanner.reading.formats.fast_path_sections import POSSESSIVE, without_sections
from siteatlas.scanner.reading.formats.salvage import decode
from siteatlas.scanner.reading.tally import RawEntries
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

USUAL_ORDER = ("loc", "lastmod", "changefreq", "priority")
ENTRY_END = "</url>"
MAX_REST_CHARS = 256 * 1024
# ASCII only, which the engine matches by a bitmap; anything else is for the strict parser.
VALUE = r"[\t\n\r -%'-;=-~]++"
ANY_LOC = r"[^<]*+"
FIELD = "|".join(rf"<{name}>[^<]*+</{name}>{ANY_XML_WHITE_SPACE}" for name in USUAL_ORDER)
NAMES = re.compile(r"<(\w+)>")
EXTRAS = "extras"


class FastPath:
    """The fast path of one document; `feed` returns None once the strict parser must continue."""

    def __init__(self, prefixes: Collection[str] = ()) -> None:
        """`prefixes` are those that the root of the document declares."""
        self.rest = ""
        self._extensions = Extensions(prefixes)
        self._order: tuple[str, ...] = ()
        self._locs_are_plain = True

    def feed(self, text: str) -> RawEntries | None:
        """The entries completed by this text, or None: then `rest` is the unread text."""
        if self.rest:
            text = self.rest + text
        end = text.rfind(ENTRY_END) + len(ENTRY_END)
        if end < len(ENTRY_END):
            self.rest = text
            return RawEntries() if len(text) <= MAX_REST_CHARS else None
        chunk = without_sections(text[:end])
        entries = None if chunk is None else self._parse_chunk(chunk)
        self.rest = text if entries is None else text[end:]
        return entries

    def _parse_chunk(self, chunk: str) -> RawEntries | None:
        """The `<url>` entries of a chunk, by pattern; None if the XML parser must read it."""
        self._order = self._order or _order_of_first_entry(chunk, self._extensions.block)
        if not self._order:
            return None
        tags = chunk.count("<")
        if self._locs_are_plain:
            entries = self._match(chunk, tags, PLAIN_URL)
            if entries and _decode_ampersands(entries, chunk):
                entries.locs_are_plain = True
                return entries
            self._locs_are_plain = False
        entries = self._match(chunk, tags, ANY_LOC)
        if entries and "&" in chunk:
            entries.locs = [decode(loc) for loc in entries.locs]
        return entries

    def _match(self, chunk: str, tags: int, loc: str) -> RawEntries | None:
        """Match all `<url>` entries of a chunk; None if any tag of it was not matched."""
        order = self._order
        rows = _entry_pattern(order, loc, self._extensions.block).findall(chunk)
        if not rows:
            return None
        columns: dict[str, Sequence[str]] = dict(zip(order, zip(*rows, strict=True), strict=True))
        lastmods, changefreqs, priorities = (columns[name] for name in USUAL_ORDER[1:])
        absent = lastmods.count("") + changefreqs.count("") + priorities.count("")
        blocks = Blocks(columns.get(EXTRAS, ()))
        if tags != 10 * len(rows) - 2 * absent + blocks.tag_count:
            return None
        extras = self._extensions.read(blocks)
        if extras is None:
            return None
        return RawEntries(columns["loc"], lastmods, changefreqs, priorities, extras)


@lru_cache(maxsize=64)
def _entry_pattern(order: tuple[str, ...], loc: str, block: str | None) -> re.Pattern[str]:
    """The pattern of `<url>` entries on the fast path, with their fields in this order."""
    parts = {
        "loc": f"<loc>{ANY_XML_WHITE_SPACE}({loc}){ANY_XML_WHITE_SPACE}</loc>{ANY_XML_WHITE_SPACE}",
        EXTRAS: f"({block}*{POSSESSIVE})",
        **{
            name: f"(?:<{name}>({VALUE})</{name}>{ANY_XML_WHITE_SPACE})?"
            for name in USUAL_ORDER[1:]
        },
    }
    return re.compile(f"<url>{ANY_XML_WHITE_SPACE}{''.join(parts[name] for name in order)}</url>")


def _order_of_first_entry(chunk: str, block: str | None) -> tuple[str, ...]:
    """The order that all entries must have; empty if the first is not plain.

    What it lacks is expected at its end.
    """
    whole, blocks = _first_entry_patterns(block)
    entry = whole.search(chunk)
    if entry is None:
        return ()
    names = NAMES.findall(blocks.sub(f"<{EXTRAS}>", entry[1]) if blocks else entry[1])
    if len(set(names)) != len(names) or "loc" not in names:
        return ()
    usual = (*USUAL_ORDER, EXTRAS) if blocks else USUAL_ORDER
    if names == [name for name in usual if name in names]:
        return usual
    return (*names, *(name for name in usual if name not in names))


@lru_cache(maxsize=8)
def _first_entry_patterns(block: str | None) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    """The pattern of a whole entry, and that of everything in it besides its fields."""
    part = FIELD if block is None else f"(?:{FIELD}|{block})"
    whole = re.compile(rf"<url>{ANY_XML_WHITE_SPACE}((?:{part})+)</url>")
    return whole, None if block is None else re.compile(f"{block}+")


def _decode_ampersands(entries: RawEntries, chunk: str) -> bool:
    """Decode the only entity that plain URLs contain; False if there are others."""
    if "&" in chunk:
        locs = "\n".join(entries.locs)
        if locs.count("&") != locs.count("&amp;"):
            return False
        entries.locs = locs.replace("&amp;", "&").split("\n")
    return True
