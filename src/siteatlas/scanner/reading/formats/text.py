"""Reads plain text sitemaps: one URL per line.

Of relative URLs, only those that are clearly paths are resolved; any other line may be prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from siteatlas.errors import NotASitemap
from siteatlas.net.address import resolve_url
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import MAX_URL_CHARS, build_columns
from siteatlas.scanner.reading.tally import RawEntries, ReadResult, Tally
from siteatlas.scanner.reading.white_space import WHITE_SPACE

# Lines are buffered until this many have been read, or all of them.
LINES_TO_JUDGE = 100
LINES_PER_STEP = 500
PATH = re.compile(r"\.{0,2}/\S*")


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
        """The lines completed by this text, at least an empty one; the rest is buffered."""
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
        if not (final or self._urls or len(self._pending_lines) >= LINES_TO_JUDGE):
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
        """Resolve a line of a text sitemap if it is a path and the base URL is known."""
        if self._base is None or not PATH.fullmatch(line):
            return line
        url = resolve_url(line, self._base)
        if url is None:
            return line
        self._tally.note(ProblemCode.RELATIVE_URL)
        return url

    def _drop_long_line(self) -> None:
        """Discard the buffered part of a line that is too long for a URL, and count it once."""
        if not self._line_too_long:
            self._tally.skip(ProblemCode.URL_TOO_LONG)
        self._line_too_long = True
        self._unfinished = ""
