"""How many different names one document may have, for the dictionary that libxml2 keeps of them.

The dictionary holds the names of elements, attributes and processing instructions, the URIs of
namespaces, and blanks between tags. It lives as long as the document, see `name_dictionary.py`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

MAX_NAMES = 2000
MAX_NAMES_CHARS = 128 * 1024
# Checking all of the text would take a quarter more CPU than reading it does. On average half of
# this is skipped between two checks, at most all of it; which part is not predictable.
MAX_SKIPPED_CHARS = 2 * 1024 * 1024
# How much text each check looks at, in however small pieces it arrives; usual ones are larger.
CHECKED_CHARS = 48 * 1024

BLANK = r" \t\r\n"
TAG_NAME = re.compile(rf"<([^{BLANK}<>/!][^{BLANK}<>/]*+)")
ATTRIBUTE_NAME = re.compile(rf"""[{BLANK}]([^{BLANK}=<>/"']++)[{BLANK}]*+=[{BLANK}]*+["']""")
# The blank in front keeps a long word of `xmlns` from being searched to its end by each of them.
NAMESPACE = re.compile(
    rf"""xmlns(?<=[{BLANK}]xmlns)[^{BLANK}=<>"']*+[{BLANK}]*+=[{BLANK}]*+("[^"]*+"|'[^']*+')"""
)
BLANKS = re.compile(rf">([{BLANK}]{{16,59}}+)<")


class NameLimit:
    """The names in those parts of one document that were checked."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._skip_chars = secrets.randbelow(MAX_SKIPPED_CHARS) + 1
        self._check_chars = 0

    def allows(self, text: str) -> bool:
        """Whether the document may continue with this text, which splits no tag."""
        if not self._is_due(len(text)):
            return True
        known = len(self._names)
        self._names.update(*_names_in(text))
        return len(self._names) == known or self._is_within_limits()

    def _is_due(self, chars: int) -> bool:
        """Whether the next text, of so many characters, is to be checked."""
        if self._skip_chars > 0:
            self._skip_chars -= chars
            if self._skip_chars > 0:
                return False
            self._check_chars = CHECKED_CHARS
        self._check_chars -= chars
        if self._check_chars <= 0:
            self._skip_chars = secrets.randbelow(MAX_SKIPPED_CHARS) + 1
        return True

    def _is_within_limits(self) -> bool:
        """Whether the XML names of the document are few and short enough for the parser."""
        return len(self._names) <= MAX_NAMES and sum(map(len, self._names)) <= MAX_NAMES_CHARS


def _names_in(text: str) -> Iterator[list[str]]:
    """All texts in this XML that libxml2 stores in its dictionary of names."""
    yield TAG_NAME.findall(text)
    yield ATTRIBUTE_NAME.findall(text)
    yield BLANKS.findall(text)
    if "xmlns" in text:
        yield NAMESPACE.findall(text)
