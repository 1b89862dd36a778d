"""Lines and columns in the decoded text of a document: of an offset, and of samples by their text.

Columns count characters. What a compressed file or another encoding looked like does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from siteatlas.errors import ScanError
from siteatlas.findings.judging import Finding, Sample
from siteatlas.scanner.reading.decoding import Body, TextDecoder
from siteatlas.scanner.reading.entries import Tally
from siteatlas.scanner.reading.repair import BARE_AMPERSAND

# Where a fault of the document as a whole shows, if it has a place.
_PLACES = {
    "doctype-present": re.compile("(<!DOCTYPE)", re.IGNORECASE),
    "namespace-wrong": re.compile(r"(<(?:[\w.-]+:)?(?:urlset|sitemapindex))\b", re.IGNORECASE),
    "content-after-end": re.compile(r"</(?:[\w.-]+:)?(?:urlset|sitemapindex)\s*>\s*(\S)"),
    # Of feeds, whose markup is not judged.
    "bare-ampersand": re.compile(rf"({BARE_AMPERSAND.pattern})"),
    "html-entity": re.compile(r"(&(?!amp;|lt;|gt;|quot;|apos;)[A-Za-z][A-Za-z0-9]{1,31};)"),
    "forbidden-character": re.compile("([\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff])"),
}
# A URL, and what else one entry has behind it.
OVERLAP = 32 * 1024
_find_entry_end = re.compile(r"</(?:[\w.-]+:)?(?:url|sitemap|item|entry)\s*>").search
_ENTRY_STARTS = ("<url", ":url", "<sitemap", ":sitemap", "<item", "<entry")
# What may be written as a reference, beside the ampersand.
_has_unusual = re.compile(r"[^\x20-\x7e]|[<>\"']").search
# What stands directly around a value: markup, quotes, or the end of a CDATA section.
_BEFORE, _AFTER = frozenset(">\"'[ \t\r\n\ufeff"), frozenset("<\"'] \t\r\n")


class TextPlace:
    """Line and column of the next character of a text that comes in parts."""

    def __init__(self) -> None:
        self.line, self.column = 1, 1
        self._after_return = False

    def of(self, text: str, offset: int) -> tuple[int, int]:
        """Line and column of an offset in the next part."""
        lines = text.count("\n", 0, offset)
        last = text.rfind("\n", 0, offset)
        if "\r" in text:
            # A line feed behind a carriage return ends the same line.
            lines += text.count("\r", 0, offset) - text.count("\r\n", 0, offset)
            last = max(last, text.rfind("\r", 0, offset))
            lines -= text.endswith("\r", 0, offset) and text.startswith("\n", offset)
        if self._after_return and text.startswith("\n") and offset:
            lines -= 1
        return self.line + lines, offset - last if last >= 0 else self.column + offset

    def advance(self, text: str) -> None:
        """Pass over the next part."""
        if not text:
            return
        self.line, self.column = self.of(text, len(text))
        self._after_return = text.endswith("\r")


def decoded_text(path: Path) -> Iterator[str]:
    """The text of a file as the reader sees it, up to where its bytes are damaged."""
    tally = Tally()
    body, decoder = Body(None, tally), TextDecoder(None, tally)
    try:
        with path.open("rb") as file:
            while data := file.read(256 * 1024):
                for chunk in body.feed(data):
                    yield decoder.decode(chunk)
        for chunk in body.close():
            yield decoder.decode(chunk)
    except ScanError:
        pass
    yield decoder.decode(b"", final=True)


def located(findings: Sequence[Finding], texts: Iterable[str]) -> list[Finding]:
    """The findings of a document with the place of each sample that its text has."""
    search = _Search(findings)
    if search.is_done:
        return list(findings)
    kept = ""
    place = TextPlace()
    for text in texts:
        kept += text
        done = len(kept) - OVERLAP
        if done > OVERLAP:
            search.look(kept, done, place)
            place.advance(kept[:done])
            kept = kept[done:]
        if search.is_done:
            break
    search.look(kept, len(kept), place)
    return list(map(search.result, findings))


class _Search:
    """Looks for samples in the parts of a text; each is done when it was found."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._found: dict[Sample | str, tuple[int, int]] = {}
        self._left = {
            sample: sample.again
            for finding in findings
            for sample in finding.samples
            if sample.line is None and sample.text
        }
        self._places = {
            one.code: _PLACES[one.code]
            for one in findings
            if one.code in _PLACES and not any(sample.line for sample in one.samples)
        }

    @property
    def is_done(self) -> bool:
        return not self._left and not self._places

    def look(self, text: str, end: int, place: TextPlace) -> None:
        """Search for those that begin before `end`; what follows them is in the text too."""
        for code, pattern in list(self._places.items()):
            if (match := pattern.search(text)) and match.start(1) < end:
                self._found[code] = place.of(text, match.start(1))
                del self._places[code]
        for sample in list(self._left):
            needles = [one for one in (sample.url, sample.value) if one]
            for start, length in _occurrences(text, needles[0], end):
                offset = start
                if len(needles) > 1 and needles[0] != needles[1]:
                    offset = _value_in_entry(text, needles[1], start, start + length)
                    if offset < 0:
                        continue
                if self._left[sample]:
                    self._left[sample] -= 1
                    continue
                self._found[sample] = place.of(text, offset)
                del self._left[sample]
                break

    def result(self, finding: Finding) -> Finding:
        """The finding with what was found of it."""
        samples = tuple(map(self._with_place, finding.samples))
        if finding.code in self._found:
            line, column = self._found[finding.code]
            first = samples[0] if samples else Sample()
            samples = (replace(first, line=line, column=column), *samples[1:])
        return replace(finding, samples=samples)

    def _with_place(self, sample: Sample) -> Sample:
        found = self._found.get(sample)
        return sample if found is None else replace(sample, line=found[0], column=found[1])


def _occurrences(text: str, needle: str, end: int) -> Iterator[tuple[int, int]]:
    """Where a value stands for itself, not as a part of a longer one, and how long it is there."""
    is_cut = len(needle) >= 200 and needle.endswith("…")
    for start, stop in _matches(text, needle.removesuffix("…") if is_cut else needle):
        if start >= end:
            return
        before = text[start - 1] if start else ">"
        if before in _BEFORE and (is_cut or (text[stop : stop + 1] or "<") in _AFTER):
            yield start, stop - start


def _matches(text: str, needle: str) -> Iterator[tuple[int, int]]:
    """Where a value is written, as it is or with references."""
    if _has_unusual(needle):
        yield from (match.span() for match in re.finditer(_any_writing(needle), text))
        return
    for form in dict.fromkeys((needle.replace("&", "&amp;"), needle)):
        start = text.find(form)
        while start >= 0:
            yield start, start + len(form)
            start = text.find(form, start + 1)


@lru_cache(maxsize=256)
def _any_writing(needle: str) -> str:
    # The reader replaces control characters that XML forbids.
    other = r"|&#?\w{1,31};|[\x00-\x1f\x7f-\x9f])"
    return "".join(
        f"(?:{re.escape(one)}{other}" if _has_unusual(one) or one == "&" else re.escape(one)
        for one in needle
    )


def _value_in_entry(text: str, value: str, start: int, stop: int) -> int:
    """Where a value stands in the entry around this URL; -1 if it has none."""
    end = match.start() if (match := _find_entry_end(text, stop)) else stop + OVERLAP
    begin = max(0, *(text.rfind(tag, 0, start) for tag in _ENTRY_STARTS))
    for first, last in ((stop, end), (begin, start)):
        for offset, _ in _occurrences(text[first:last], value, last - first):
            return first + offset
    return -1
