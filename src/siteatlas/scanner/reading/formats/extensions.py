"""Reads the extras of an entry: images, videos, news, alternates, mobile, PageMap, ResourceSync.

The shape of every key is described in docs/reference/extras.md. Values stay text, as listed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from lxml import etree

from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import WHITE_SPACE, Extras, Tally
from siteatlas.scanner.reading.formats.elements import local_name, text_of

MAX_FIELDS = 64
MAX_REPEATED_ATTRIBUTES = 8
MAX_VALUE_CHARS = 4096
VALUE_COST = 16
MAX_EXTRAS_CHARS = 256 * 1024
REPEATED_FIELDS = frozenset({"tag", "category", "price", "content_segment_loc"})


def read_extension(tag: str, element: etree._Element, extras: Extras, tally: Tally) -> None:
    """Add one extension element of an entry to its extras; unknown ones are left out.

    Before the first one of an entry, `extras_left` of the tally must be set.
    """
    reader = READERS.get(local_name(tag))
    if reader is not None:
        reader(element, extras, tally)


def _read_image(element: etree._Element, extras: Extras, tally: Tally) -> None:
    fields = _fields(element, tally)
    if fields.get("loc"):
        _append_item(extras, "images", fields, tally)


def _read_video(element: etree._Element, extras: Extras, tally: Tally) -> None:
    fields = _fields(element, tally)
    if fields:
        _append_item(extras, "videos", fields, tally)


def _read_news(element: etree._Element, extras: Extras, tally: Tally) -> None:
    fields = _fields(element, tally)
    if fields:
        extras.setdefault("news", fields)


def _read_alternate(element: etree._Element, extras: Extras, tally: Tally) -> None:
    attributes: dict[str, str] = dict(element.items())  # type: ignore[arg-type] # of str here
    address = attributes.get("href")
    if not address or attributes.get("rel", "alternate").lower() != "alternate":
        return
    link = {"href": _truncate(address.strip(WHITE_SPACE), tally)}
    for name in ("hreflang", "media"):
        if value := attributes.get(name):
            link[name] = _truncate(value.strip(WHITE_SPACE), tally)
            break
    _append_item(extras, "alternates", link, tally)


def _read_mobile(_element: etree._Element, extras: Extras, _tally: Tally) -> None:
    extras["mobile"] = True


def _read_pagemap(element: etree._Element, extras: Extras, tally: Tally) -> None:
    for data in element:
        if local_name(data.tag) == "dataobject":
            item: Extras = {
                name: _truncate(value, tally)
                for name in ("id", "type")
                if (value := data.get(name))
            }
            item["attributes"] = _pagemap_attributes(data, tally)
            _append_item(extras, "pagemap", in_order(item), tally)


def _pagemap_attributes(data: etree._Element, tally: Tally) -> Extras:
    attributes: Extras = {}
    for child in data:
        name = child.get("name")
        if local_name(child.tag) == "attribute" and name:
            value = child.get("value") or text_of(child).strip(WHITE_SPACE)
            _append_item(attributes, _truncate(name, tally), _truncate(value, tally), tally)
    return in_order(attributes)


def _read_resource(element: etree._Element, extras: Extras, tally: Tally) -> None:
    attributes = {
        name: _truncate(value.strip(WHITE_SPACE), tally)
        for name in ("change", "datetime", "hash", "length", "path", "type")
        if (value := element.get(name))
    }
    if attributes:
        extras.setdefault("resourcesync", attributes)


def says_deleted(extras: Extras | None) -> bool:
    """Whether the extras of an entry say that its resource was deleted."""
    resource = extras.get("resourcesync") if extras else None
    return resource is not None and resource.get("change", "").lower() == "deleted"


READERS: dict[str, Callable[[etree._Element, Extras, Tally], None]] = {
    "image": _read_image,
    "video": _read_video,
    "news": _read_news,
    "link": _read_alternate,
    "mobile": _read_mobile,
    "pagemap": _read_pagemap,
    "md": _read_resource,
}


def _fields(element: etree._Element, tally: Tally, depth: int = 1) -> Extras:
    """The children by name; one that has children becomes a dictionary itself.

    An attribute of a child is stored next to it, like `restriction_relationship` and `restriction`.
    Runs for every field of a document, so the usual child costs no more than two calls in Python.
    """
    fields: Extras = {}
    repeated: dict[str, list[etree._Element]] | None = None
    for child in element if len(element) <= MAX_FIELDS else islice(element, MAX_FIELDS):
        name = local_name(child.tag)
        if name in REPEATED_FIELDS:
            repeated = {} if repeated is None else repeated
            repeated.setdefault(name, []).append(child)
            continue
        text = child.text
        if len(child):
            value: Extras | str = _element_value(child, tally, depth)
        else:
            value = _truncate(text.strip(WHITE_SPACE) if text else "", tally)
        if value and name not in fields:
            fields[name] = value
        for key, attribute in child.items() if tally.extras_left > 0 else ():
            fields.setdefault(f"{name}_{local_name(str(key))}", _truncate(str(attribute), tally))
    if repeated is not None:
        for name, children in repeated.items():
            _add_repeated(fields, name, children, tally, depth)
    return in_order(fields)


def _add_repeated(
    fields: Extras, name: str, children: list[etree._Element], tally: Tally, depth: int
) -> None:
    """Add a list of the values, and one of the same length per attribute, None if absent."""
    for child in children:
        _append_item(fields, name, _element_value(child, tally, depth), tally)
    kept = children[: len(fields[name])]
    keys = list(dict.fromkeys(str(key) for child in kept for key in child.keys()))  # noqa: SIM118
    if len(keys) > MAX_REPEATED_ATTRIBUTES:
        tally.note(ProblemCode.EXTRAS_CUT)
    for key in keys[:MAX_REPEATED_ATTRIBUTES]:
        texts = [child.get(key) for child in kept]
        values = [None if text is None else _truncate(text, tally) for text in texts]
        fields.setdefault(f"{name}_{local_name(key)}", values)


def _element_value(child: etree._Element, tally: Tally, depth: int) -> Extras | str:
    if not len(child):
        return _truncate((child.text or "").strip(WHITE_SPACE), tally)
    if depth < 8:
        return _fields(child, tally, depth + 1)
    tally.note(ProblemCode.EXTRAS_CUT)
    return ""


def in_order(values: Extras) -> Extras:
    """The same with its keys in order, which must not depend on how a document is read."""
    return dict(sorted(values.items())) if len(values) > 1 else values


def _append_item(extras: Extras, key: str, value: Any, tally: Tally) -> None:
    items = extras.get(key)
    if items is None:
        items = extras[key] = []
    if len(items) < 1000 and tally.extras_left > 0:
        items.append(value)
    else:
        tally.note(ProblemCode.EXTRAS_CUT)


def _truncate(value: str, tally: Tally) -> str:
    size = len(value)
    if size <= MAX_VALUE_CHARS and size <= tally.extras_left:
        tally.extras_left -= size + VALUE_COST
        return value
    return _truncate_to_limits(value, tally)


def _truncate_to_limits(value: str, tally: Tally) -> str:
    longest = min(MAX_VALUE_CHARS, max(tally.extras_left, 0))
    tally.extras_left -= min(len(value), longest) + VALUE_COST
    if len(value) <= longest:
        return value
    tally.note(ProblemCode.EXTRAS_CUT)
    return value[:longest]
