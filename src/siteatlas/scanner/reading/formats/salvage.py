"""Recovers single entries of a malformed document with regular expressions.

Begins where the strict parser stopped. Takes an address only if it stands whole between its tags;
an entry without one is counted as lost. The caller marks the document as cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, pairwise

from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import MAX_URL_CHARS, WHITE_SPACE, Tally

UNFINISHED_CHARS = 256 * 1024
# So far the next entry is looked for, with which parsing goes on.
MAX_BROKEN_CHARS = 64 * 1024
# The children that one entry of an index may have, all of which are read in one step.
MAX_LOCS = 1000

PREFIX = r"(?:[\w.-]{1,40}:)?"
# A part of an image or a video is not a part of its page.
OWN_PREFIX = r"(?!(?:image|video|news|mobile|xhtml):)" + PREFIX
COMMENT_START, COMMENT_END = "<!--", "-->"
CDATA_START, CDATA_END = "<![CDATA[", "]]>"
# Repairs leave no reference that is longer than `&#1114111;`.
MAX_ENCODED_URL_CHARS = 10 * MAX_URL_CHARS
MAX_DIGITS = 12
MAX_SECTION_CHARS = 16 * 1024
_find_section = re.compile(r"<!(?:--|\[CDATA\[)").search
_find_loc_tag = re.compile(rf"</?{PREFIX}loc(?=[\s/>])", re.IGNORECASE).search
ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# What follows the address must be its own end or that of its entry, not a stray bracket.
_find_locs = re.compile(
    rf"<{OWN_PREFIX}loc(?:\s[^<>]*)?>([^<]*)<(?=/{PREFIX}(?:loc|url|sitemap)\s*>)", re.IGNORECASE
).findall
FIELDS = tuple(
    re.compile(rf"<{OWN_PREFIX}{name}\s*>([^<]*)</{PREFIX}{name}\s*>", re.IGNORECASE)
    for name in ("lastmod", "changefreq", "priority")
)
# What ResourceSync says of a page that no longer exists.
_find_deleted = re.compile(
    rf"""<{PREFIX}md\s(?:[^<>]*\s)?change\s*=\s*["']\s*deleted\s*["']""", re.IGNORECASE
).search
_match_bare_address = re.compile(
    rf"<[^<>]*>\s*(https?://[^<\s]+)\s*</{PREFIX}(?:url|sitemap)\s*>", re.IGNORECASE
).match
_replace_references = re.compile(r"&(?:#(x?)([0-9a-fA-F]+)|(amp|lt|gt|quot|apos));").sub
PREDEFINED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


Entry = tuple[str, ...]


@lru_cache(maxsize=64)
def _entry_start(prefixes: frozenset[str]) -> re.Pattern[str]:
    """The start of an entry with one of these prefixes, with none, or with that of its address."""
    known = "|".join(map(re.escape, sorted(prefixes - {""})))
    other = r"([\w.-]{1,40}:)(?=(?:url|sitemap)>\s*<\1loc>)"
    return re.compile(
        rf"<(?:{f'(?:{known}):|' if known else ''}{other})?(url|sitemap)(?=[\s/>])", re.IGNORECASE
    )


def start_of_next_entry(text: str, prefixes: frozenset[str]) -> int | None:
    """Where the second entry of a text begins; None if it has none."""
    pattern = r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|" + _entry_start(prefixes).pattern
    matches = re.finditer(pattern, text[:MAX_BROKEN_CHARS], re.IGNORECASE | re.DOTALL)
    starts = (match.start() for match in matches if match[2])
    return next(islice(starts, 1, None), None)


@dataclass(slots=True)
class Salvaged:
    """Entries as text: loc, lastmod, changefreq, priority."""

    pages: list[Entry] = field(default_factory=list)
    children: list[Entry] = field(default_factory=list)


class Salvage:
    """The rest of one broken document, from the last entry that the parser did not finish."""

    def __init__(self, tally: Tally, prefixes: frozenset[str] = frozenset()) -> None:
        """`prefixes` are those of the root and of entries.

        An element with any other is part of an entry, unless it begins with an address.
        """
        self._tally = tally
        self._start = _entry_start(prefixes)
        self.has_found = False
        self._unfinished = ""
        self._sections = _Sections()

    def feed(self, text: str, *, final: bool = False) -> Salvaged:
        """The entries of this text, which splits no tag."""
        # The last tag again: only what follows may show that it starts an entry.
        searched = max(self._unfinished.rfind("<"), 0)
        text = self._unfinished + self._sections.feed(text, final=final)
        starts = self._starts(text, searched)
        end = len(text)
        if not final:
            end = starts.pop().start() if starts else max(text.rfind("<"), 0)
        edges = [match.start() for match in starts] + [end]
        found = Salvaged()
        for match, (start, stop) in zip(starts, pairwise(edges), strict=True):
            self._parse_entry(match[2].lower(), text[start:stop], found)
        self._unfinished = "" if final else text[end:]
        if len(self._unfinished) > UNFINISHED_CHARS:
            self._parse_entry("", self._unfinished, found)
            self._unfinished = ""
        return found

    def _starts(self, text: str, searched: int) -> list[re.Match[str]]:
        """The starts of the entries in a text of which the first part was searched before.

        In that part, only the first tag can be one.
        """
        known = self._start.match(text) if searched else None
        return [*([known] if known else ()), *self._start.finditer(text, searched)]

    def _parse_entry(self, kind: str, segment: str, found: Salvaged) -> None:
        texts = _find_locs(segment) if len(segment) <= UNFINISHED_CHARS else []
        if not texts and (bare := _match_bare_address(segment)):
            texts = [bare[1]]
        locs = [decode_url(text) for text in texts[:MAX_LOCS]]
        if not locs:
            self._tally.skip(ProblemCode.ENTRY_MALFORMED, value=segment)
            return
        if _find_deleted(segment):
            self._tally.skip(ProblemCode.RESOURCE_DELETED, url=locs[0])
            return
        self._tally.note(ProblemCode.ENTRY_SALVAGED, url=locs[0])
        self.has_found = True
        locs = [loc for loc in locs if loc.strip(WHITE_SPACE)] or locs[:1]
        if len(locs) > 1:
            more = len(locs) - 1 + max(len(texts) - MAX_LOCS, 0)
            self._tally.note(ProblemCode.SEVERAL_LOCS, more, url=locs[0], value=locs[1])
        matches = [pattern.search(segment) for pattern in FIELDS]
        values = [match[1] if match else "" for match in matches]
        if kind == "sitemap":
            found.children += [(loc, *values) for loc in locs]
        else:
            found.pages.append((locs[0], *values))


class _Sections:
    """Takes comments and CDATA sections out of the text of a broken document.

    A comment is dropped, CDATA becomes plain text; either may end in a later text. Searched by
    hand, since a pattern would look for the end again at every start.
    """

    def __init__(self) -> None:
        self._in_comment = False
        self._open_cdata = ""

    def feed(self, text: str, *, final: bool) -> str:
        text, self._open_cdata = self._open_cdata + text, ""
        kept: list[str] = []
        position = self._end_of_comment(text, 0) if self._in_comment else 0
        while start := _find_section(text, position):
            kept.append(text[position : start.start()])
            if start[0] == COMMENT_START:
                position = self._end_of_comment(text, start.end())
            else:
                content, position = self._cdata(text, start.start(), final=final)
                kept.append(content)
        return "".join([*kept, text[position:]])

    def _end_of_comment(self, text: str, position: int) -> int:
        end = text.find(COMMENT_END, position)
        self._in_comment = end < 0
        return len(text) if end < 0 else end + len(COMMENT_END)

    def _cdata(self, text: str, start: int, *, final: bool) -> tuple[str, int]:
        """The text of the CDATA section that starts here, and where to go on.

        If its end seems to be missing, its start is plain text: it must not hide other entries.
        """
        inside = start + len(CDATA_START)
        longest = inside + MAX_SECTION_CHARS
        following = text.find(CDATA_START, inside, longest)
        end = text.find(CDATA_END, inside, longest if following < 0 else following)
        if end >= 0 and not _find_loc_tag(text, inside, end):
            return text[inside:end].translate(ESCAPED), end + len(CDATA_END)
        may_go_on = end < 0 and following < 0 and len(text) < longest
        if final or not may_go_on:
            return CDATA_START, inside
        self._open_cdata = text[start:]
        return "", len(text)


def decode(text: str) -> str:
    """Replace the references in a text; repairs have made sure that all are valid."""
    if "&" not in text:
        return text
    if text.count("&") == text.count("&amp;"):
        return text.replace("&amp;", "&")
    return _replace_references(_decode_reference, text)


def decode_url(text: str) -> str:
    """Like `decode`, unless the URL is too long anyway, since many references take long."""
    if len(text) > MAX_ENCODED_URL_CHARS:
        text = text.strip(WHITE_SPACE)
        if len(text) > MAX_ENCODED_URL_CHARS:
            return text
    return decode(text)


def _decode_reference(match: re.Match[str]) -> str:
    is_hex, number, name = match.groups()
    if name:
        return PREDEFINED[name]
    code = int(number[:MAX_DIGITS], 16 if is_hex else 10)
    # NUL makes the entry one that cannot be kept, which is what a broken reference must do.
    return chr(code) if 0 < code <= 0x10FFFF and len(number) <= MAX_DIGITS else "\x00"
