"""Images and language links in their usual spelling, read by patterns for the fast lane.

A block is all that an entry contains besides its four fields, in one place. What is spelled in any
other way, or is large enough to meet a limit, is left to the strict parser and `extensions.py`,
which must give the same extras.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence

from siteatlas.scanner.reading.formats.extensions import MAX_FIELDS
from siteatlas.scanner.reading.formats.salvage import decode
from siteatlas.scanner.reading.tally import Extras
from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE, WHITE_SPACE

# So many characters hold fewer items than `extensions.py` allows for an entry.
MAX_BLOCK_CHARS = 32 * 1024

# CPython 3.11.0 to 3.11.4 match possessive groups wrongly (gh-106052), and later ones fail on
# captures inside them (gh-101955), of which a block has none.
POSSESSIVE = "+" if sys.version_info >= (3, 11, 5) else ""
TEXT = r"[^<\r]{0,4096}+"
IMAGE_FIELDS = "|".join(
    f"<image:{name}>{TEXT}</image:{name}>"
    for name in ("loc", "title", "caption", "geo_location", "license")
)
IMAGE_ITEMS = f"(?:(?:{IMAGE_FIELDS}){ANY_XML_WHITE_SPACE}){{1,{MAX_FIELDS}}}{POSSESSIVE}"
IMAGE = f"<image:image>{ANY_XML_WHITE_SPACE}{IMAGE_ITEMS}</image:image>"

GAP = r"[ \t\r\n]++"
VALUE = r'[^"<\t\r\n]{1,4096}+'
LINK_START, LINK_END = f'<xhtml:link{GAP}rel="alternate"{GAP}', r"[ \t\r\n]*+/>"
LINK = (
    f'{LINK_START}(?:hreflang="{VALUE}"{GAP}href="{VALUE}"|href="{VALUE}"{GAP}hreflang="{VALUE}")'
    + LINK_END
)
# One search over the blocks of many entries. A sign that XML cannot hold stands between them.
BETWEEN = "<\x00"
PARTS = re.compile(
    rf"<(?:image:(\w++)>([^<]*+)|xhtml:link{GAP}rel=\"alternate\"{GAP}(?:"
    rf'hreflang="({VALUE})"{GAP}href="({VALUE})"|href="({VALUE})"{GAP}hreflang="({VALUE})")|\x00)'
)


def block_pattern(prefixes: Collection[str]) -> str | None:
    """What a block may be where these prefixes are known, without groups; None for nothing."""
    items = [item for prefix, item in (("image", IMAGE), ("xhtml", LINK)) if prefix in prefixes]
    return f"(?:(?:{'|'.join(items)}){ANY_XML_WHITE_SPACE})" if items else None


class Blocks:
    """The blocks of some entries; an entry without one has an empty text."""

    def __init__(self, blocks: Sequence[str]) -> None:
        self._blocks = blocks
        self._joined = BETWEEN.join(blocks) if any(blocks) else ""

    @property
    def tag_count(self) -> int:
        """The number of `<` in all of them."""
        return self._joined.count("<") - self._joined.count(BETWEEN)

    def extras(self) -> Sequence[Extras | None] | None:
        """What each entry has, nothing when none has any; None when the strict parser must read."""
        if not self._joined:
            return ()
        if max(map(len, self._blocks)) > MAX_BLOCK_CHARS:
            return None
        return list(_extras_of_entries(PARTS.findall(self._joined + BETWEEN)))


def _extras_of_entries(parts: Sequence[tuple[str, ...]]) -> Iterator[Extras | None]:
    extras: Extras = {}
    image: Extras = {}
    for name, text, language, address, address_first, language_last in parts:
        if name == "image":
            image = {}
            extras.setdefault("images", []).append(image)
        elif name:
            if value := decode(text).strip(WHITE_SPACE):
                image.setdefault(name, value)
        elif address or address_first:
            link = _alternate_link(address or address_first, language or language_last)
            extras.setdefault("alternates", []).append(link)
        else:
            yield _with_good_images(extras) if extras else None
            extras = {}


def _alternate_link(address: str, language: str) -> Extras:
    return {
        "href": decode(address).strip(WHITE_SPACE),
        "hreflang": decode(language).strip(WHITE_SPACE),
    }


def _with_good_images(extras: Extras) -> Extras | None:
    """Images without an address are none."""
    images = extras.get("images")
    if images and not all("loc" in image for image in images):
        extras["images"] = [image for image in images if "loc" in image]
        return {name: items for name, items in extras.items() if items} or None
    return extras
