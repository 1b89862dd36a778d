"""Reads `<urlset>` documents, plain ones through the fast lane, others with the strict parser."""

from __future__ import annotations

from collections.abc import Iterable

from lxml import etree

from siteatlas.scanner.entries import build_columns
from siteatlas.scanner.formats.elements import ElementStream, local_name, text_of
from siteatlas.scanner.formats.extensions import read_extension
from siteatlas.scanner.formats.fastlane import FastLane
from siteatlas.scanner.repair import XmlRepair
from siteatlas.scanner.tally import Extras, Harvest, RawEntries, Tally

FIELDS = ("loc", "lastmod", "changefreq", "priority")
# An `image:loc` that stands where it should not is no page.
EXTENSIONS = ("image", "video", "news", "mobile", "xhtml")
MAX_TAGS = 256


class _FieldNumbers(dict[str, int]):
    """The column of a tag, -1 for an extension; by the full tag, since names repeat."""

    def __missing__(self, tag: str) -> int:
        name, space = local_name(tag), tag[: -len(local_name(tag))].lower()
        is_field = name in FIELDS and not any(word in space for word in EXTENSIONS)
        number = FIELDS.index(name) if is_field else -1
        if len(self) < MAX_TAGS:
            self[tag] = number
        return number


FIELD_NUMBERS = _FieldNumbers()


class Urlset:
    """One urlset document: text in, columns out. `fast` False keeps it off the fast lane."""

    def __init__(self, root_tag: str, tally: Tally, *, fast: bool = True) -> None:
        self._tally = tally
        self._repair = XmlRepair(tally)
        self._lane = FastLane() if fast else None
        self._elements = ElementStream(self._repair.mend(root_tag), "url", tally)

    def feed(self, text: str, *, final: bool = False) -> Harvest:
        """What this text completes; with `final`, also whether the document ends properly."""
        text = self._repair.feed(text, final=final)
        if self._lane is not None:
            raw = None if final else self._lane.feed(text)
            if raw is not None:
                return Harvest(build_columns(raw, self._tally))
            text = self._lane.rest + text if final else self._lane.rest
            self._lane = None
        raw = _read_elements(self._elements.read(text, final=final), self._tally)
        return Harvest(build_columns(raw, self._tally), error=self._elements.error)


def _read_elements(elements: Iterable[etree._Element], tally: Tally) -> RawEntries:
    rows = [_read_entry(element, tally) for element in elements]
    if not rows:
        return RawEntries()
    locs, lastmods, changefreqs, priorities = zip(*(values for values, _ in rows), strict=True)
    extras = [extra for _, extra in rows]
    return RawEntries(locs, lastmods, changefreqs, priorities, extras)


def _read_entry(element: etree._Element, tally: Tally) -> tuple[list[str], Extras | None]:
    values = ["", "", "", ""]
    extras: Extras | None = None
    for child in element:
        field = FIELD_NUMBERS[child.tag]
        if field < 0:
            extras = {} if extras is None else extras
            read_extension(child, extras, tally)
        elif not values[field]:
            values[field] = (child.text if field else text_of(child)) or ""
    return values, extras or None
