"""Lists of URLs for `siteatlas compare`: one URL per line, or the column `url` of a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from siteatlas.cli.terminal.output import print_warning
from siteatlas.errors import InputError

LINES_PER_BATCH = 5_000
URL_COLUMN = "url"
_WEB_URL = re.compile(r"https?://[^\s/]", re.IGNORECASE)


class ListUrls:
    """The URLs of a file; blank lines are left out, lines that are no URLs are counted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = 0
        self._others = 0

    async def __call__(self) -> AsyncIterator[Sequence[str]]:
        self._lines = self._others = 0
        try:
            with self._path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                lines = _listed_urls(file)
                while batch := list(islice(lines, LINES_PER_BATCH)):
                    yield self._urls_of(batch)
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror or error}") from error
        except csv.Error as error:
            raise InputError(f"{self._path} is not valid CSV: {error}.") from error
        if self._lines and self._lines == self._others:
            raise InputError(self._complaint())

    def _urls_of(self, lines: Sequence[str]) -> list[str]:
        """The lines of a list that are URLs; the others are counted."""
        urls = [line for line in lines if _WEB_URL.match(line)]
        self._lines += len(lines)
        self._others += len(lines) - len(urls)
        return urls

    def warn(self) -> None:
        """Print how many lines of the list are no URLs, if any."""
        if self._others:
            print_warning(self._complaint())

    def _complaint(self) -> str:
        """How many lines of the list are no URLs."""
        verb = "is not an http(s) URL" if self._others == 1 else "are not http(s) URLs"
        return f"{self._others} of {self._lines} lines {verb}; expected one URL per line."


def _listed_urls(file: TextIO) -> Iterator[str]:
    """The lines of a list of URLs that are not blank; its first one decides whether it is CSV."""
    lines = (line for line in file if line.strip())
    first = next(lines, "")
    columns = [name.strip().lower() for name in next(csv.reader([first]), [])]
    if URL_COLUMN not in columns:
        yield from filter(None, map(str.strip, chain([first], lines)))
        return
    place = columns.index(URL_COLUMN)
    for row in csv.reader(lines):
        if len(row) > place and (url := row[place].strip()):
            yield url
