"""Comments and CDATA sections as plain text, so that the patterns of the fast path need neither.

Comments are left out and CDATA is escaped, both only in front of a tag: then neither can stand
inside a tag, and the rest means the same without them. Whatever is left of a `<!` in the text has
no place in any pattern, so the document leaves the fast path.
"""

from __future__ import annotations

import re
import sys
from itertools import compress

from siteatlas.scanner.reading.formats.elements import has_extreme_tag
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

# CPython 3.11.0 to 3.11.4 match possessive groups wrongly (gh-106052), and later ones fail on
# captures inside them (gh-101955), of which there must be none.
POSSESSIVE = "+" if sys.version_info >= (3, 11, 5) else ""
CDATA_START, CDATA_END = "<![CDATA[", "]]>"
COMMENT = rf"[^-]*+(?:-[^-]++)*{POSSESSIVE}"
CONTENT = rf"[^\]]*+(?:\](?!\]>)[^\]]*+)*{POSSESSIVE}"
# Content without `<`, of less than 1,000 characters; a bracket in it is rare.
SHORT_SECTION = rf"[^\]<]{{0,500}}+(?:\](?!\]>)[^\]<]{{0,50}}+){{0,9}}{POSSESSIVE}"
SECTION = re.compile(rf"<!(?:--({COMMENT})-->|\[CDATA\[({CONTENT})\]\]>)")
IN_FRONT_OF_TAG = re.compile(f"{ANY_XML_WHITE_SPACE}<").match
IN_FRONT_OF_END_TAG = re.compile(f"{ANY_XML_WHITE_SPACE}</").match
# Shorter than any tag with too many attributes, for which the strict parser looks everywhere.
MAX_COMMENT_CHARS = 1000


def has_sections(text: str) -> bool:
    """Whether a text has anything that looks like a comment or a CDATA section."""
    # The single character first, since a search for it is several times as fast.
    return "!" in text and "<!" in text


def without_sections(text: str) -> str | None:
    """The same content without comments and CDATA sections; None for the strict parser."""
    if not has_sections(text):
        return None if "]" in text and CDATA_END in text else text
    # Every section that begins has an end, so that no search for one runs to the end in vain.
    if text.rfind(CDATA_END) < text.rfind(CDATA_START):
        return None
    pieces = SECTION.split(text)
    comments, contents, behind = pieces[1::3], pieces[2::3], pieces[3::3]
    if not contents or not (
        _are_allowed(comments, contents, text) and _are_in_place(contents, behind)
    ):
        return None
    pieces[1::3] = [""] * len(comments)
    pieces[2::3] = _escaped(contents)
    plain = "".join(pieces)
    return None if "]" in plain and CDATA_END in plain else plain


def _are_allowed(comments: list[str | None], contents: list[str | None], text: str) -> bool:
    """Whether the strict parser would find nothing in them that it refuses."""
    within = "".join(filter(None, comments + contents))
    longest = max(map(len, filter(None, comments)), default=0)
    return longest <= MAX_COMMENT_CHARS and not ("<" in within and has_extreme_tag(text))


def _are_in_place(contents: list[str | None], behind: list[str]) -> bool:
    """Whether a tag follows each comment, and an end tag each CDATA section."""
    if None not in contents:
        return all(map(IN_FRONT_OF_END_TAG, behind))
    in_text = compress(behind, [content is not None for content in contents])
    return all(map(IN_FRONT_OF_TAG, behind)) and all(map(IN_FRONT_OF_END_TAG, in_text))


def _escaped(contents: list[str | None]) -> list[str]:
    """The content of CDATA sections as text, nothing in the places of comments."""
    joined = "\x00".join([content or "" for content in contents])
    for character, reference in ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"):
        if character in joined:
            joined = joined.replace(character, reference)
    return joined.split("\x00")
