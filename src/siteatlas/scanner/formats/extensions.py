"""Reads what an entry carries beside its URL: images, videos, news, alternates, mobile pages."""

from __future__ import annotations

from lxml import etree

from siteatlas.scanner.formats.elements import local_name, text_of
from siteatlas.scanner.tally import Extras

REPEATED_FIELDS = frozenset({"tag", "category"})


def read_extension(element: etree._Element, extras: Extras) -> None:
    """Add one extension element of an entry to its extras; unknown ones are left out."""
    name = local_name(element.tag)
    if name == "image":
        _read_image(element, extras)
    elif name == "video":
        extras.setdefault("video", []).append(_fields(element))
    elif name == "news":
        extras["news"] = _fields(element)
    elif name == "link":
        _read_alternate(element, extras)
    elif name == "mobile":
        extras["mobile"] = True


def _read_image(element: etree._Element, extras: Extras) -> None:
    for child in element:
        if local_name(child.tag) == "loc":
            location = text_of(child).strip()
            if location:
                extras.setdefault("images", []).append(location)


def _read_alternate(element: etree._Element, extras: Extras) -> None:
    language, address = element.get("hreflang"), element.get("href")
    if address and element.get("rel", "alternate").lower() == "alternate":
        extras.setdefault("alternates", []).append(
            {"hreflang": (language or "").strip(), "href": address.strip()}
        )


def _fields(element: etree._Element) -> Extras:
    """The children as a flat dictionary; a child with children of its own becomes one again."""
    fields: Extras = {}
    for child in element:
        name = local_name(child.tag)
        value = _fields(child) if len(child) else text_of(child).strip()
        if name in REPEATED_FIELDS:
            fields.setdefault(name, []).append(value)
        elif value:
            fields.setdefault(name, value)
    return fields
