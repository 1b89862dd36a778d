"""Reads the entries of a sitemap index: the children with the dates that the index gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lxml import etree

from siteatlas.scanner.events import ChildLink
from siteatlas.scanner.reading.entries import LASTMODS, Entries, fault_of_url
from siteatlas.scanner.reading.formats.elements import local_name, text_of
from siteatlas.scanner.reading.tally import Tally
from siteatlas.scanner.reading.white_space import WHITE_SPACE


def read_children(elements: Iterable[etree._Element], tally: Tally) -> list[ChildLink]:
    """The children of `<sitemap>` elements; one that has several addresses gives as many."""
    rows = []
    for element in elements:
        fields = [(local_name(child.tag), text_of(child)) for child in element]
        locs = [text for name, text in fields if name == "loc" and text.strip(WHITE_SPACE)]
        lastmod = next((text for name, text in fields if name == "lastmod"), "")
        if len(locs) > 1:
            tally.note("several_locs", len(locs) - 1, url=locs[0], value=locs[1])
        rows += [(loc, lastmod) for loc in locs or [""]]
    return build_children(rows, tally)


def build_children(rows: Iterable[Sequence[str]], tally: Tally) -> list[ChildLink]:
    """The children that can be kept, from loc and lastmod; a relative one stays relative here."""
    children: list[ChildLink] = []
    for url, lastmod, *_ in rows:
        child = _child(url.strip(WHITE_SPACE), lastmod, tally)
        tally.entries += 1
        if child is not None:
            children.append(child)
    return children


def _child(url: str, lastmod: str, tally: Tally) -> ChildLink | None:
    fault = fault_of_url(url)
    if fault == "relative_url":
        tally.note(fault, url=url, place=0)
    elif fault is not None:
        tally.skip(fault, url=url or None, place=0)
        return None
    moment = LASTMODS.column([lastmod], tally, Entries([url], [0]))[0]
    return ChildLink(url, moment)
