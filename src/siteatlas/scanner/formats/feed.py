"""Reads RSS and Atom feeds as sitemaps: the link of each item and its date."""

from __future__ import annotations

from lxml import etree

from siteatlas.scanner.entries import build_columns
from siteatlas.scanner.formats.elements import ElementStream, local_name, text_of
from siteatlas.scanner.repair import XmlRepair
from siteatlas.scanner.tally import Harvest, RawEntries, Tally

DATE_FIELDS = ("updated", "modified", "pubdate", "date", "published", "issued")


class Feed:
    """One feed document; `item` is the name of its entries, `item` for RSS, `entry` for Atom."""

    def __init__(self, root_tag: str, item: str, tally: Tally) -> None:
        self._tally = tally
        self._repair = XmlRepair(tally)
        self._elements = ElementStream(self._repair.mend(root_tag), item, tally)

    def feed(self, text: str, *, final: bool = False) -> Harvest:
        """What this text completes; with `final`, also whether the document ends properly."""
        text = self._repair.feed(text, final=final)
        rows = [_read_item(element) for element in self._elements.read(text, final=final)]
        raw = RawEntries([link for link, _ in rows], [date for _, date in rows])
        return Harvest(build_columns(raw, self._tally), error=self._elements.error)


def _read_item(element: etree._Element) -> tuple[str, str]:
    link = ""
    permalink = ""
    dates: dict[str, str] = {}
    for child in element:
        name = local_name(child.tag)
        if name == "link":
            link = link or _link(child)
        elif name == "guid" and child.get("isPermaLink", "true").lower() == "true":
            permalink = text_of(child)
        elif name in DATE_FIELDS:
            dates.setdefault(name, text_of(child))
    date = next((dates[name] for name in DATE_FIELDS if dates.get(name)), "")
    return link or permalink, date


def _link(element: etree._Element) -> str:
    if element.get("rel", "alternate").lower() != "alternate":
        return ""
    return element.get("href") or text_of(element).strip()
