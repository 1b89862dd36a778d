"""Language links of the fast path: `<xhtml:link>` with `rel`, `hreflang` and `href` in any order.

All links of a document must have the order of the first one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from siteatlas.scanner.reading.formats.extensions import MAX_VALUE_CHARS
from siteatlas.scanner.reading.formats.fast_path_columns import clean
from siteatlas.scanner.reading.formats.fast_path_fields import Shape
from siteatlas.scanner.reading.tally import Extras
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

GAP = r"[ \t\n]++"
FIRST = re.compile(rf'<xhtml:link((?:{GAP}[a-z]++="[^"<]*+")+){ANY_XML_WHITE_SPACE}/?>')
# With the value, in which a search for names would begin anew at each letter.
NAME = re.compile(rf'{GAP}([a-z]++)="[^"]*+"')
ATTRIBUTES = ["href", "hreflang", "rel"]
# XML reads these inside an attribute as something else.
NOT_IN_ATTRIBUTES = "<\t\n"


class Links:
    """The links of one document."""

    tag = "xhtml:link"

    def __init__(self) -> None:
        # Of the attributes; empty while unknown.
        self._order: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """The attributes of the links, as far as they are known."""
        return Shape(attributes=self._order)

    def learn(self, text: str) -> None:
        """Learn the order of the attributes, unless it is known."""
        self._order = self._order or _order_of_first(text)

    def take(self, text: str) -> tuple[list[Extras], list[str]] | None:
        """All links of a text, and the text around them; None for the strict parser."""
        self.learn(text)
        if not self._order:
            return None
        pieces = _pattern(self._order).split(text)
        links = self.read([pieces[1::3], pieces[2::3]], self.shape)
        return None if links is None else (links, pieces[::3])

    def read(
        self, columns: list[list[str]], shape: Shape, _sections: Collection[str] = ()
    ) -> list[Extras] | None:
        """The links of this shape from their two columns; None for the strict parser."""
        first, second = columns
        if not first or not _are_usual(first) or not _are_usual(second):
            return None
        if shape.attributes.index("href") < shape.attributes.index("hreflang"):
            first, second = second, first
        pairs = zip(clean(first), clean(second), strict=True)
        return [{"href": href, "hreflang": language} for language, href in pairs]


def _order_of_first(text: str) -> tuple[str, ...]:
    """The order of the attributes in the first link; empty if they are not the usual ones."""
    first = FIRST.search(text)
    names = NAME.findall(first[1]) if first else ()
    return tuple(names) if sorted(names) == ATTRIBUTES else ()


@lru_cache(maxsize=8)
def _pattern(order: tuple[str, ...]) -> re.Pattern[str]:
    """The fast-path pattern of an `<xhtml:link>` with its attributes in this order."""
    return re.compile(link_pattern(order))


def link_pattern(order: tuple[str, ...]) -> str:
    """The pattern of an `<xhtml:link>` with its attributes in this order, as text."""
    value = f'"([^"]{{1,{MAX_VALUE_CHARS}}}+)"'
    values = {"rel": 'rel="alternate"', "href": f"href={value}", "hreflang": f"hreflang={value}"}
    attributes = "".join(GAP + values[name] for name in order)
    return f"<xhtml:link{attributes}{ANY_XML_WHITE_SPACE}(?:/>|></xhtml:link>)"


def _are_usual(values: list[str]) -> bool:
    """Whether all attribute values of links mean what they are."""
    joined = "".join(values)
    return not any(character in joined for character in NOT_IN_ATTRIBUTES)
