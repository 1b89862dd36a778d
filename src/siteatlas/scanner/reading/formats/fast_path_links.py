"""Language links of the fast path: `<xhtml:link>` with `rel`, `hreflang` and `href` in any order.

All links of a document must have the order of the first one.
"""

from __future__ import annotations

import re
from functools import lru_cache

from siteatlas.scanner.reading.formats.fast_path_columns import are_short, clean
from siteatlas.scanner.reading.tally import Extras
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

GAP = r"[ \t\n]++"
FIRST = re.compile(rf'<xhtml:link((?:{GAP}[a-z]++="[^"<]*+")+){ANY_XML_WHITE_SPACE}/?>')
NAME = re.compile(r'([a-z]++)="')
ATTRIBUTES = ["href", "hreflang", "rel"]
# XML reads these inside an attribute as something else.
NOT_IN_ATTRIBUTES = "<\t\n"


class Links:
    """The links of one document."""

    tag = "xhtml:link"

    def __init__(self) -> None:
        self._order: tuple[str, ...] = ()

    def take(self, text: str, longest: int) -> tuple[list[Extras], list[str]] | None:
        """All links of a text, and the text around them; None for the strict parser."""
        self._order = self._order or _order_of_first(text)
        if not self._order:
            return None
        pieces = _pattern(self._order).split(text)
        first, second = pieces[1::3], pieces[2::3]
        if not first or not _are_usual(first, longest) or not _are_usual(second, longest):
            return None
        if self._order.index("href") < self._order.index("hreflang"):
            first, second = second, first
        pairs = zip(clean(first), clean(second), strict=True)
        return [{"href": href, "hreflang": language} for language, href in pairs], pieces[::3]


def _order_of_first(text: str) -> tuple[str, ...]:
    """The order of the attributes in the first link; empty if they are not the usual ones."""
    first = FIRST.search(text)
    names = NAME.findall(first[1]) if first else ()
    return tuple(names) if sorted(names) == ATTRIBUTES else ()


@lru_cache(maxsize=8)
def _pattern(order: tuple[str, ...]) -> re.Pattern[str]:
    """The fast-path pattern of an `<xhtml:link>` with its attributes in this order."""
    values = {
        "rel": 'rel="alternate"',
        "href": 'href="([^"]*+)"',
        "hreflang": 'hreflang="([^"]*+)"',
    }
    attributes = "".join(GAP + values[name] for name in order)
    return re.compile(f"<xhtml:link{attributes}{ANY_XML_WHITE_SPACE}(?:/>|></xhtml:link>)")


def _are_usual(values: list[str], longest: int) -> bool:
    """Whether attribute values of links need neither decoding nor truncation nor the parser."""
    joined = "".join(values)
    return (
        "" not in values
        and not any(character in joined for character in NOT_IN_ATTRIBUTES)
        and are_short(values, longest)
    )
