"""Repairs XML text in the stream before the strict parser sees it; every repair is counted.

Repairs bare ampersands, HTML entities and forbidden characters, nothing else. A forbidden control
character is replaced by another one that XML allows and keeps everywhere, so that a URL that
contains it is refused, not rewritten.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.entities import html5

from siteatlas.errors import XmlTokenTooLong
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import Tally

PART_CHARS = 16 * 1024
DENSE_PART_CHARS = 4 * 1024


def split_text(text: str, mark: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, smaller ones if this mark is frequent, and whether each is the last."""
    return _parts(text, DENSE_PART_CHARS if is_dense(text, mark) else PART_CHARS)


def split_if_dense(text: str, mark: str) -> Iterator[tuple[str, bool]]:
    """The text in one part, or in several if this mark is frequent, and whether it is the last."""
    return _parts(text, DENSE_PART_CHARS if is_dense(text, mark) else len(text))


def split_between_tags(text: str) -> Iterator[tuple[str, bool]]:
    """Like `split_text`, but no part ends inside a tag."""
    size = DENSE_PART_CHARS if is_dense(text, "<") else PART_CHARS
    start = 0
    while (end := text.find(">", start + size) + 1) and end < len(text):
        yield text[start:end], False
        start = end
    yield text[start:], True


def is_dense(text: str, mark: str) -> bool:
    """Whether a mark is so frequent in a text that reading it takes long."""
    # In real documents, entries and references are longer than this on average.
    return len(text) > DENSE_PART_CHARS and text.count(mark) * 10 > len(text)


def _parts(text: str, size: int) -> Iterator[tuple[str, bool]]:
    if len(text) <= size:
        yield text, True
        return
    for start in range(0, len(text), size):
        yield text[start : start + size], start + size >= len(text)


HELD_CHARS = 1024 * 1024
FORBIDDEN_CONTROLS = bytes(code for code in range(32) if code not in (9, 10, 13))
ALLOWED_CONTROL = "\x85"
CONTROL_TO_ALLOWED = dict.fromkeys(FORBIDDEN_CONTROLS, ALLOWED_CONTROL)
NONCHARACTERS = ("\ufffe", "\uffff")
_replace_references = re.compile(
    r"&(?!(?:amp|lt|gt|quot|apos);)"
    r"(?:(#)([0-9]{1,8}|[xX][0-9a-fA-F]{1,7})|([A-Za-z][A-Za-z0-9]{1,31}));"
).sub
BARE_AMPERSAND = re.compile(
    r"&(?!(?:#(?:[0-9]{1,8}|[xX][0-9a-fA-F]{1,7})|[A-Za-z][A-Za-z0-9]{1,31});)"
)
_find_other_than_amp = re.compile("&(?!amp;)").search
CDATA_START, CDATA_END = "<![CDATA[", "]]>"
# Cannot fail once it has begun, so that it takes linear time without possessive groups too.
_split_at_cdata = re.compile(r"(<!\[CDATA\[[^\]]*+(?:\](?!\]>)[^\]]*+)*(?:\]\]>|\Z))").split
REPLACEMENT = "\ufffd"

SHOWN_CHARS = 60


class XmlRepair:
    """Buffers text so that what it returns ends after a `>`: no tag or entity is split."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._unmended = ""
        self._held = ""
        self._held_chars = 0
        self._in_cdata = False

    def feed(self, text: str, *, final: bool = False) -> str:
        """The repaired text so far; costs a few plain searches if there is nothing to repair.

        Raises XmlTokenTooLong when no tag ends within a megabyte.
        """
        if self._unmended:
            text = self._unmended + text
        # Mended before it is held: all that is held would take too long at once.
        cut = len(text) if final else _end_of_whole_tokens(text)
        self._unmended = text[cut:]
        text = self.mend(text[:cut] if self._unmended else text)
        self._held_chars += len(text)
        if self._held:
            text = self._held + text
        cut = len(text) if final else text.rfind(">") + 1
        if not cut and self._held_chars > HELD_CHARS:
            raise XmlTokenTooLong
        self._held = text[cut:]
        self._held_chars = self._held_chars if not cut else len(self._held)
        return text[:cut]

    def mend(self, text: str) -> str:
        """Repair text that splits no entity and neither end of a CDATA section."""
        text = self._repair_characters(text)
        if "&" in text and _find_other_than_amp(text):
            text = self._repair_outside_cdata(text)
        self._track_cdata(text)
        return text

    def _repair_characters(self, text: str) -> str:
        raw = text.encode()
        forbidden = len(raw) - len(raw.translate(None, FORBIDDEN_CONTROLS))
        if forbidden:
            self._tally.note(ProblemCode.FORBIDDEN_CHAR, forbidden)
            text = text.translate(CONTROL_TO_ALLOWED)
        if not text.isascii():
            for character in NONCHARACTERS:
                if character in text:
                    self._tally.note(ProblemCode.FORBIDDEN_CHAR, text.count(character))
                    text = text.replace(character, REPLACEMENT)
        return text

    def _repair_outside_cdata(self, text: str) -> str:
        position = 0
        if self._in_cdata:
            end = text.find(CDATA_END)
            position = len(text) if end < 0 else end + len(CDATA_END)
        if not _has_other_references(text[position:]):
            return text
        pieces = _split_at_cdata(text[position:])
        pieces[::2] = [
            self._repair_references(piece) if "&" in piece else piece for piece in pieces[::2]
        ]
        return text[:position] + "".join(pieces)

    def _repair_references(self, text: str) -> str:
        for match in BARE_AMPERSAND.finditer(text):
            if not self._tally.wants_sample(ProblemCode.BARE_AMPERSAND):
                break
            self._note(ProblemCode.BARE_AMPERSAND, match, count=0)
        text, count = BARE_AMPERSAND.subn("&amp;", text)
        if count:
            self._tally.note(ProblemCode.BARE_AMPERSAND, count)
        return _replace_references(self._repair_reference, text)

    def _repair_reference(self, match: re.Match[str]) -> str:
        is_number, number, name = match.groups()
        if is_number:
            return self._repair_numeric_reference(number)
        characters = html5.get(name + ";")
        if characters is None:
            self._note(ProblemCode.BARE_AMPERSAND, match)
            return "&amp;" + match.group()[1:]
        self._note(ProblemCode.HTML_ENTITY, match)
        return "".join(f"&#{ord(character)};" for character in characters)

    def _note(self, code: ProblemCode, match: re.Match[str], count: int = 1) -> None:
        if not self._tally.wants_sample(code):
            self._tally.note(code, count)
            return
        around = match.string[max(0, match.start() - SHOWN_CHARS) : match.end() + SHOWN_CHARS]
        self._tally.note(code, count, value=" ".join(around.split()))

    def _repair_numeric_reference(self, number: str) -> str:
        code = int(number[1:], 16) if number[0] in "xX" else int(number)
        if code in CONTROL_TO_ALLOWED:
            self._tally.note(ProblemCode.FORBIDDEN_CHAR)
            return ALLOWED_CONTROL
        if code > sys.maxunicode or 0xD800 <= code < 0xE000 or chr(code) in NONCHARACTERS:
            self._tally.note(ProblemCode.FORBIDDEN_CHAR)
            return REPLACEMENT
        return f"&#{code};"

    def _track_cdata(self, text: str) -> None:
        start = text.rfind(CDATA_START) if "!" in text else -1
        if start >= 0:
            self._in_cdata = text.find(CDATA_END, start) < 0
        elif self._in_cdata:
            self._in_cdata = CDATA_END not in text


def _end_of_whole_tokens(text: str) -> int:
    """Where the text ends without a reference, or an end of a CDATA section, that may go on."""
    start = max(len(text) - 34, 0)
    tail = text[start:]
    if tail.endswith((">", "\n")):
        return len(text)
    unfinished = max(tail.rfind("&"), tail.rfind("<"))
    if unfinished >= 0 and ">" not in tail[unfinished:] and ";" not in tail[unfinished:]:
        return start + unfinished
    return len(text) - (tail.endswith("]") + tail.endswith("]]"))


def _has_other_references(text: str) -> bool:
    """Whether there may be any `&` but that of `&amp;` outside of CDATA sections.

    Looks at the ampersands alone, of which there are far fewer than sections.
    """
    place = text.find("&")
    while place >= 0:
        end = place + 1
        if not text.startswith("&amp;", place):
            start = text.rfind("<", 0, place)
            if not _is_in_section(text, start, place):
                return True
            end = text.find(CDATA_END, place)
            if end < 0:
                return False
        place = text.find("&", end)
    return False


def _is_in_section(text: str, start: int, place: int) -> bool:
    return (
        start >= 0
        and text.startswith(CDATA_START, start)
        and text.find(CDATA_END, start, place) < 0
    )
