"""Reads the usual shapes of `<url>` entries with regular expressions, far faster than a parser.

The usual entries of a document are matched whole, with CDATA and extensions (`fast_path_whole.py`).
For others, comments and CDATA are turned into plain text first (`fast_path_sections.py`), and the
extensions, in one place of each entry, are read as blocks (`fast_path_extras.py`). A chunk of text
is accepted only when every `<` in it belongs to a tag that was matched. A document that leaves the
fast path continues with the strict parser from `rest`, the exact place where the fast path ended.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from siteatlas.scanner.reading.formats.entry_digests import EntryDigests
from siteatlas.scanner.reading.formats.fast_path_columns import column_of
from siteatlas.scanner.reading.formats.fast_path_extras import MARK, Extensions
from siteatlas.scanner.reading.formats.fast_path_items import optional
from siteatlas.scanner.reading.formats.fast_path_order import (
    EXTRAS,
    USUAL_ORDER,
    order_of_first_entry,
)
from siteatlas.scanner.reading.formats.fast_path_sections import (
    POSSESSIVE,
    has_sections,
    without_sections,
)
from siteatlas.scanner.reading.formats.fast_path_templates import ReadSamples, Templates
from siteatlas.scanner.reading.formats.fast_path_whole import ANY_LOC, MAX_MISSES, WholeEntries
from siteatlas.scanner.reading.formats.salvage import decode_url
from siteatlas.scanner.reading.tally import RawEntries
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

ENTRY_END = "</url>"
MAX_REST_CHARS = 256 * 1024
# So many characters hold fewer items than `extensions.py` allows for an entry.
MAX_ENTRY_CHARS = 32 * 1024
# ASCII only, which the engine matches by a bitmap; anything else is for the strict parser.
VALUE = r"[\t\n\r -%'-;=-~]++"


class FastPath:
    """The fast path of one document; `feed` returns None once the strict parser must continue."""

    def __init__(
        self,
        prefixes: Collection[str] = (),
        read_samples: ReadSamples | None = None,
        digests: EntryDigests | None = None,
    ) -> None:
        """`prefixes` are those that the root of the document declares.

        `read_samples` is the strict parser for the samples of templates. With `digests`, entries
        have them, and known ones are recognized instead of read.
        """
        self.rest = ""
        self._digests = digests
        self._extensions = Extensions(prefixes)
        self._whole = WholeEntries(self._extensions)
        self._templates = None if read_samples is None else Templates(read_samples)
        self._order: tuple[str, ...] = ()
        self._misses_of_blocks = 0

    def feed(self, text: str) -> RawEntries | None:
        """The entries completed by this text, or None: then `rest` is the unread text."""
        if self.rest:
            text = self.rest + text
        end = text.rfind(ENTRY_END) + len(ENTRY_END)
        if end < len(ENTRY_END):
            self.rest = text
            return RawEntries() if len(text) <= MAX_REST_CHARS else None
        chunk = _with_usual_line_ends(text[:end])
        entries = self._read(chunk) if self._digests is None else self._recognize(chunk)
        self.rest = text if entries is None else text[end:]
        return entries

    def _recognize(self, chunk: str) -> RawEntries | None:
        """The entries of a chunk with their digests; only those that are not known are read.

        A comment may span several entries, so a chunk with one has no digests.
        """
        assert self._digests is not None
        if has_sections(chunk):
            return self._read(chunk)
        examined = self._digests.examine(chunk)
        if examined.recognized is not None:
            entries = self._read(examined.unknown_text) if examined.places else RawEntries()
            if entries is not None and len(entries.locs) == len(examined.places):
                entries.recognized, entries.places = examined.recognized, examined.places
                entries.digests = examined.unknown_digests
                return entries
        entries = self._read(chunk)
        if entries is not None and len(entries.locs) == len(examined.digests):
            entries.digests = examined.digests
        return entries

    def _read(self, chunk: str) -> RawEntries | None:
        """The `<url>` entries of a chunk, by pattern; None if the XML parser must read it."""
        if not has_sections(chunk):
            return self._read_plain(chunk)
        entries = self._whole.read_with_sections(chunk)
        if entries is None:
            entries = self._read_plain(chunk)
            self._whole.learn_sections(chunk)
        return entries

    def _read_plain(self, chunk: str) -> RawEntries | None:
        """The entries of a chunk without its sections; None if the XML parser must read it."""
        plain = without_sections(chunk)
        if plain is None:
            return None
        entries = self._whole.read(plain)
        if entries is None and self._misses_of_blocks < MAX_MISSES:
            entries = self._read_blocks(plain)
            self._misses_of_blocks = 0 if entries else self._misses_of_blocks + 1
        if entries is None and self._templates is not None:
            entries = self._templates.read(plain)
        return entries

    def _read_blocks(self, chunk: str) -> RawEntries | None:
        """Match all `<url>` entries of a chunk; None if any tag of it was not matched."""
        order = self._order = self._order or order_of_first_entry(chunk, self._extensions.block)
        taken = self._extensions.take(chunk) if order else None
        if taken is None or (taken.items and _has_large_entry(chunk)):
            return None
        columns = _columns(taken.text, order)
        extras = None if columns is None else taken.by_entry(columns.pop(EXTRAS, ()))
        if columns is None or extras is None:
            return None
        locs, lastmods, changefreqs, priorities = (columns[name] for name in USUAL_ORDER)
        if "&" in chunk:
            locs = [decode_url(loc) for loc in locs]
        return RawEntries(locs, lastmods, changefreqs, priorities, extras)


def _has_large_entry(chunk: str) -> bool:
    """Whether an entry may have more items than `extensions.py` allows."""
    return max(map(len, chunk.split(ENTRY_END))) > MAX_ENTRY_CHARS


def _columns(text: str, order: tuple[str, ...]) -> dict[str, Sequence[str]] | None:
    """The parts of all entries by name; None if a tag is not part of an entry in this order."""
    pieces = _entry_pattern(order).split(text)
    width = len(order) + 1
    if len(pieces) == 1 or "<" in "".join(pieces[::width]):
        return None
    return {name: column_of(pieces[at::width]) for at, name in enumerate(order, start=1)}


def _with_usual_line_ends(text: str) -> str:
    """The same text to XML, for which all line ends are the same."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


@lru_cache(maxsize=64)
def _entry_pattern(order: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of `<url>` entries on the fast path, with marks, and fields in this order."""
    gap = ANY_XML_WHITE_SPACE
    parts = {
        "loc": f"<loc>{gap}({ANY_LOC}){gap}</loc>{gap}",
        EXTRAS: f"({MARK}*{POSSESSIVE})",
        **{name: optional(f"<{name}>({VALUE})</{name}>{gap}") for name in USUAL_ORDER[1:]},
    }
    return re.compile(f"<url>{gap}{''.join(parts[name] for name in order)}</url>")
