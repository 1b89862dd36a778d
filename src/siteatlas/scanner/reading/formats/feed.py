"""Reads RSS (0.9 to 2.0) and Atom (0.3 and 1.0) feeds as sitemaps: each item's link and date."""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from siteatlas.scanner.reading.entries import build_columns
from siteatlas.scanner.reading.formats.elements import ElementStream, local_name, text_of
from siteatlas.scanner.reading.repair import XmlRepair
from siteatlas.scanner.reading.tally import RawEntries, ReadResult, Tally
from siteatlas.scanner.reading.text_parts import split_if_dense
from siteatlas.scanner.reading.white_space import WHITE_SPACE

# The best date first: when the page changed, then when it appeared.
DATE_FIELDS = ("updated", "modified", "pubdate", "date", "published", "issued", "created")
WEB_SCHEMES = ("http://", "https://")


class Feed:
    """One feed document; `item` is the name of its entries, `item` for RSS, `entry` for Atom."""

    def __init__(self, root_tag: str, item: str, tally: Tally, base: str | None = None) -> None:
        self._tally = tally
        self._base = base
        self._repair = XmlRepair(tally)
        self._elements = ElementStream(self._repair.mend(root_tag), [item], tally)

    def feed(self, text: str, *, final: bool = False) -> Iterator[ReadResult]:
        """The items completed by this text; `final` also checks that the document is complete."""
        for part, is_last in split_if_dense(text, "&"):
            is_end = final and is_last
            text = self._repair.feed(part, final=is_end)
            for elements in self._elements.read_parts(text, final=is_end):
                rows = [_read_item(element) for element in elements]
                del elements
                self._elements.forget()
                raw = RawEntries([link for link, _ in rows], [date for _, date in rows])
                columns = build_columns(raw, self._tally, self._base)
                yield ReadResult(columns, error=self._elements.error)

    def flush(self) -> ReadResult:
        """Nothing: only incomplete items are buffered."""
        return ReadResult()


def _read_item(element: etree._Element) -> tuple[str, str]:
    """The link and the date of one item, each from the best field that it has."""
    links: dict[str, str] = {}
    dates: dict[str, str] = {}
    for child in element:
        name = local_name(child.tag)
        if name in DATE_FIELDS:
            dates.setdefault(name, text_of(child).strip())
        elif name == "link":
            kind = "href" if child.get("href") else "link"
            links.setdefault(kind, _link(child)) or links.pop(kind)
        elif name == "guid":
            links.setdefault("guid", _permalink(child))
    link = next((links[kind] for kind in ("link", "href", "guid") if links.get(kind)), "")
    date = next((dates[name] for name in DATE_FIELDS if dates.get(name)), "")
    return link or _about(element), date


def _link(element: etree._Element) -> str:
    """The page that a link leads to; feeds also link themselves, files and comments."""
    if element.get("rel", "alternate").lower() != "alternate":
        return ""
    return (element.get("href") or text_of(element)).strip(WHITE_SPACE)


def _permalink(element: etree._Element) -> str:
    """The guid if it is a permalink, which is the default."""
    text = text_of(element).strip(WHITE_SPACE)
    is_link = element.get("isPermaLink", "true").strip().lower() != "false"
    return text if is_link and text.lower().startswith(WEB_SCHEMES) else ""


def _about(element: etree._Element) -> str:
    """The address that RSS 1.0 writes into the tag of an item."""
    return next((str(v) for k, v in element.attrib.items() if local_name(str(k)) == "about"), "")
