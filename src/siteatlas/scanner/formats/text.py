"""Reads plain text sitemaps: one URL a line, nothing else."""

from __future__ import annotations

from siteatlas.errors import NotASitemap
from siteatlas.scanner.entries import MAX_URL_CHARS, build_columns
from siteatlas.scanner.tally import Harvest, RawEntries, Tally

# A document is judged by so many lines at the latest, and again at its end.
LINES_TO_JUDGE = 100


class TextList:
    """One text document: text in, columns out. Blank lines and `#` comments are passed over."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._unfinished = ""
        self._line_too_long = False
        self._urls = 0

    def feed(self, text: str, *, final: bool = False) -> Harvest:
        """What this text completes; with `final`, the last line needs no line end."""
        text = self._unfinished + text
        cut = len(text) if final else max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1
        self._unfinished = text[cut:]
        lines = text[:cut].replace("\r", "\n").split("\n")
        if self._line_too_long and cut:
            self._line_too_long = False
            del lines[0]
        if len(self._unfinished) > MAX_URL_CHARS:
            self._drop_long_line()
        locs = [line for line in map(str.strip, lines) if line and line[0] != "#"]
        harvest = Harvest(build_columns(RawEntries(locs), self._tally))
        self._urls += len(harvest.columns)
        if self._is_something_else(final=final):
            harvest.error = NotASitemap("More than half of the lines are no URLs.")
        return harvest

    def _is_something_else(self, *, final: bool) -> bool:
        judged = self._urls + self._tally.skipped
        return (final or judged >= LINES_TO_JUDGE) and 2 * self._tally.skipped > judged

    def _drop_long_line(self) -> None:
        if not self._line_too_long:
            self._tally.skip("url_too_long")
        self._line_too_long = True
        self._unfinished = ""
