"""The order of the parts of an entry, which all entries of a document are expected to have."""

from __future__ import annotations

import re
from functools import lru_cache

from siteatlas.scanner.reading.white_space import ANY_XML_WHITE_SPACE

USUAL_ORDER = ("loc", "lastmod", "changefreq", "priority")
# All that an entry contains besides its four fields, in one place.
EXTRAS = "extras"
FIELD = "|".join(rf"<{name}>[^<]*+</{name}>{ANY_XML_WHITE_SPACE}" for name in USUAL_ORDER)
NAMES = re.compile(r"<(\w+)>")


def order_of_first_entry(chunk: str, block: str | None) -> tuple[str, ...]:
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
