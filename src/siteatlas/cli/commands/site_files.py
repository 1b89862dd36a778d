"""Files with lists of sites for `siteatlas domains add --file`: one site per line, or CSV.

A CSV file has a header line with the column `url`; `interval` (hours) and `tags` (separated by
spaces, commas or semicolons) may follow. Every line that cannot be used is reported with its
number.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from siteatlas.cli.terminal.site_list import STDIN, site_in_line
from siteatlas.errors import InputError, SiteatlasError
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import MAX_INTERVAL_HOURS, MIN_INTERVAL_HOURS
from siteatlas.storage.statements.domain_imports import ImportedSite
from siteatlas.tags import parse_tags

URL_COLUMN, INTERVAL_COLUMN, TAGS_COLUMN = "url", "interval", "tags"
SEPARATORS = re.compile(r"[\s,;]+")
INTERVAL_WORDS = (
    f"The interval must be a number of hours from {MIN_INTERVAL_HOURS:g} to {MAX_INTERVAL_HOURS:g}."
)


@dataclass(frozen=True, slots=True)
class ListedSite:
    """A line of a list, as it was written."""

    line: int
    site: str
    interval: str = ""
    tags: str = ""


@dataclass(frozen=True, slots=True)
class UnusableLine:
    """A line that names no site that can be watched, and why."""

    line: int
    site: str
    error: SiteatlasError


@dataclass(slots=True)
class SiteFile:
    """The sites of a file, and the lines that cannot be used.

    `lines` are the first lines of the sites, by domain.
    """

    sites: list[ImportedSite] = field(default_factory=list)
    unusable: list[UnusableLine] = field(default_factory=list)
    lines: dict[str, ListedSite] = field(default_factory=dict)

    def refuse(self, domain: str, error: InputError) -> None:
        """Note that a site was not added."""
        listed = self.lines[domain]
        self.unusable.append(UnusableLine(listed.line, listed.site, error))


def read_site_file(
    path: Path, policy: EgressPolicy, interval_hours: float | None, tags: Sequence[str]
) -> SiteFile:
    """Read a list of sites; `interval_hours` is for lines without one, `tags` are for all."""
    found = SiteFile()
    with _opened(path) as file:
        for listed in _listed_sites(file):
            try:
                site = _imported(listed, policy, interval_hours, tags)
            except InputError as error:
                found.unusable.append(UnusableLine(listed.line, listed.site, error))
                continue
            found.sites.append(site)
            found.lines.setdefault(site.address.domain, listed)
    return found


def _opened(path: Path) -> nullcontext[TextIO] | TextIO:
    """The file of a list of sites, or stdin."""
    if str(path) == STDIN:
        return nullcontext(sys.stdin)
    try:
        return path.open(encoding="utf-8-sig", errors="replace", newline="")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from error


def _listed_sites(file: TextIO) -> Iterator[ListedSite]:
    """The lines of a list that name a site; its first line decides whether it is CSV."""
    numbered = ((n, line) for n, line in enumerate(file, 1) if site_in_line(line.encode()))
    first = next(numbered, None)
    if first is None:
        return
    columns = [cell.strip().lower() for cell in first[1].split(",")]
    if URL_COLUMN in columns:
        yield from _csv_sites(file, columns, first[0])
        return
    for number, line in (first, *numbered):
        yield ListedSite(number, site_in_line(line.encode()) or "")


def _csv_sites(file: TextIO, columns: list[str], header: int) -> Iterator[ListedSite]:
    """The sites in the lines of a CSV file after its header."""
    reader = csv.reader(file)
    try:
        for cells in reader:
            row = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
            if any(row.values()):
                yield ListedSite(
                    header + reader.line_num,
                    row.get(URL_COLUMN, ""),
                    row.get(INTERVAL_COLUMN, ""),
                    row.get(TAGS_COLUMN, ""),
                )
    except csv.Error as error:
        raise InputError(f"Line {header + reader.line_num} is not valid CSV: {error}.") from error


def _imported(
    listed: ListedSite, policy: EgressPolicy, interval_hours: float | None, tags: Sequence[str]
) -> ImportedSite:
    """The site of a line; InputError if it cannot be watched."""
    address = parse_site(listed.site)
    policy.check(address)
    own = [word for word in SEPARATORS.split(listed.tags) if word]
    interval = _parse_interval(listed.interval) if listed.interval else interval_hours
    return ImportedSite(address, interval, tuple(parse_tags([*own, *tags])))


def _parse_interval(text: str) -> float:
    """The hours between two scans that a line of a list gives."""
    try:
        hours = float(text)
    except ValueError as error:
        raise InputError(INTERVAL_WORDS) from error
    if not MIN_INTERVAL_HOURS <= hours <= MAX_INTERVAL_HOURS:
        raise InputError(INTERVAL_WORDS)
    return hours
