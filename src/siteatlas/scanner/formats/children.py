"""Reads the entries of a sitemap index: the children with the dates that the index gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lxml import etree

from siteatlas.scanner.entries import LASTMODS, fault_of_url
from siteatlas.scanner.events import ChildLink
from siteatlas.scanner.formats.elements import local_name, text_of
from siteatlas.scanner.tally import Tally


def read_children(elements: Iterable[etree._Element], tally: Tally) -> list[ChildLink]:
    """The children of `<sitemap>` elements; one that has several addresses gives as many."""
    rows = []
    for element in elements:
        fields = [(local_name(child.tag), text_of(child)) for child in element]
        locs = [text for name, text in fields if name == "loc" and text.strip()]
        lastmod = next((text for name, text in fields if name == "lastmod"), "")
        if len(locs) > 1:
            tally.note("several_locs", len(locs) - 1)
        rows += [(loc, lastmod) for loc in locs or [""]]
    return build_children(rows, tally)


def build_children(rows: Iterable[Sequence[str]], tally: Tally) -> list[ChildLink]:
    """The children that can be kept, from loc and lastmod; a relative one stays relative here."""
    children = (_child(row[0].strip(), row[1], tally) for row in rows)
    return [child for child in children if child is not None]


def _child(url: str, lastmod: str, tally: Tally) -> ChildLink | None:
    fault = fault_of_url(url)
    if fault == "relative_url":
        tally.note(fault)
    elif fault is not None:
        tally.skip(fault)
        return None
    return ChildLink(url, LASTMODS.column([lastmod], tally)[0])
