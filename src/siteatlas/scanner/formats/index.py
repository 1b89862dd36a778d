"""Reads `<sitemapindex>` documents: the children with the dates that the index gives them."""

from __future__ import annotations

from siteatlas.scanner.entries import LASTMODS, fault_of_url
from siteatlas.scanner.events import ChildLink
from siteatlas.scanner.formats.elements import ElementStream, local_name, text_of
from siteatlas.scanner.repair import XmlRepair
from siteatlas.scanner.tally import Harvest, Tally


class SitemapIndex:
    """One index document: text in, children out. A relative child stays relative here."""

    def __init__(self, root_tag: str, tally: Tally) -> None:
        self._tally = tally
        self._repair = XmlRepair(tally)
        self._elements = ElementStream(self._repair.mend(root_tag), "sitemap", tally)

    def feed(self, text: str, *, final: bool = False) -> Harvest:
        """What this text completes; with `final`, also whether the document ends properly."""
        harvest = Harvest()
        for element in self._elements.read(self._repair.feed(text, final=final), final=final):
            fields = {local_name(child.tag): text_of(child) for child in reversed(element)}
            child = self._child(fields.get("loc", "").strip(), fields.get("lastmod", ""))
            if child is not None:
                harvest.children.append(child)
        harvest.error = self._elements.error
        return harvest

    def _child(self, url: str, lastmod: str) -> ChildLink | None:
        fault = fault_of_url(url)
        if fault == "relative_url":
            self._tally.note(fault)
        elif fault is not None:
            self._tally.skip(fault)
            return None
        return ChildLink(url, LASTMODS.column([lastmod], self._tally)[0])
