"""Reads the formats that list little more than addresses: feeds, and text with one URL per line.

Of an item of a feed, the link and the date count, each from the best field that it has.

Of relative URLs in a text, only clear paths are resolved; any other line may be prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree

from siteatlas.errors import NotASitemap
from siteatlas.net.address import resolve_url
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import (
    MAX_URL_CHARS,
    WHITE_SPACE,
    RawEntries,
    ReadResult,
    Tally,
    build_columns,
)
from siteatlas.scanner.reading.formats.elements import ElementStream, local_name, text_of
from siteatlas.scanner.reading.repair import XmlRepair, split_if_dense

# The best date first: when the page changed, then when it appeared.
DATE_FIELDS = ("updated", "modified", "pubdate", "date", "published", "issued", "created")


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
                if self._elements.root_closed:
                    self._elements.take_rest()
                raw = RawEntries([link for link, _ in rows], [date for _, date in rows])
                columns = build_columns(raw, self._tally, self._base)
                yield ReadResult(columns, error=self._elements.error)

    def flush(self) -> ReadResult:
        """Nothing: only incomplete items are buffered."""
        return ReadResult()


def _read_item(element: etree._Element) -> tuple[str, str]:
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
    text = text_of(element).strip(WHITE_SPACE)
    is_link = element.get("isPermaLink", "true").strip().lower() != "false"
    return text if is_link and text.lower().startswith(("http://", "https://")) else ""


def _about(element: etree._Element) -> str:
    """The address that RSS 1.0 writes into the tag of an item."""
    return next((str(v) for k, v in element.attrib.items() if local_name(str(k)) == "about"), "")


LINES_PER_STEP = 500
_is_path = re.compile(r"\.{0,2}/\S*").fullmatch


class TextList:
    """One text document: text in, columns out. Blank lines and `#` comments are skipped."""

    def __init__(self, tally: Tally, base: str | None = None) -> None:
        self._tally = tally
        self._base = base
        self._unfinished = ""
        self._line_too_long = False
        self._urls = 0
        self._pending_lines: list[str] = []

    def feed(self, text: str, *, final: bool = False) -> Iterator[ReadResult]:
        """The URLs of the lines completed by this text; with `final`, also of the last line."""
        lines = self._whole_lines(text, final=final)
        for start in range(0, len(lines), LINES_PER_STEP):
            is_last = start + LINES_PER_STEP >= len(lines)
            yield self._read_lines(lines[start : start + LINES_PER_STEP], final=final and is_last)

    def _whole_lines(self, text: str, *, final: bool) -> list[str]:
        text = self._unfinished + text
        cut = len(text) if final else max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1
        self._unfinished = text[cut:]
        lines = text[:cut].replace("\r", "\n").split("\n")
        if self._line_too_long and cut:
            self._line_too_long = False
            lines[0] = ""
        if len(self._unfinished) > MAX_URL_CHARS:
            self._drop_long_line()
        return lines

    def _read_lines(self, lines: list[str], *, final: bool) -> ReadResult:
        """The URLs of some lines, unless too few are known to tell whether this is a list."""
        kept = [
            line for line in (line.strip(WHITE_SPACE) for line in lines) if line and line[0] != "#"
        ]
        self._pending_lines += [
            self._resolve_line(line) if line[0] in "./" else line for line in kept
        ]
        # Lines are buffered until this many have been read, or all of them.
        if not (final or self._urls or len(self._pending_lines) >= 100):
            return ReadResult()
        return self.flush()

    def flush(self) -> ReadResult:
        """The URLs of the buffered lines; an error if most lines are not URLs."""
        first = not self._urls
        result = ReadResult(build_columns(RawEntries(self._pending_lines), self._tally))
        self._pending_lines = []
        self._urls += len(result.columns)
        if 2 * self._tally.skipped > self._urls + self._tally.skipped:
            result = ReadResult() if first else result
            result.error = NotASitemap("More than half of the lines are not URLs.")
        return result

    def _resolve_line(self, line: str) -> str:
        if self._base is None or not _is_path(line):
            return line
        url = resolve_url(line, self._base)
        if url is None:
            return line
        self._tally.note(ProblemCode.RELATIVE_URL)
        return url

    def _drop_long_line(self) -> None:
        if not self._line_too_long:
            self._tally.skip(ProblemCode.URL_TOO_LONG)
        self._line_too_long = True
        self._unfinished = ""
