"""`siteatlas compare`: the stored URLs of a site against a list, another site or another scan."""

from __future__ import annotations

import csv
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, TextIO
from uuid import UUID

import typer

from siteatlas.catalog.comparison import ComparedEntryView, compare_scans
from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.paging import Page
from siteatlas.catalog.url_lists import UrlFilter, read_urls, source_of_urls
from siteatlas.catalog.urls import url_hashes
from siteatlas.cli.scan.runner import local_path
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.lines import URL_KINDS
from siteatlas.cli.terminal.options import STDIN, SiteArgument
from siteatlas.cli.terminal.output import print_message, print_warning, url_lines, write_bytes
from siteatlas.cli.terminal.paged_list import read_pages
from siteatlas.errors import AddressError, DomainNotFound, InputError
from siteatlas.hash_arrays import HashArrays
from siteatlas.settings import Settings
from siteatlas.storage.models import ChangeKind
from siteatlas.storage.session import get_session


async def print_scan_differences(settings: Settings, site: str, scans: tuple[int, int]) -> None:
    """Print each entry that differs between two scans with a sign; the counts go to stderr."""
    counts = Counter[str]()
    async with opened(settings):
        async with get_session() as session, session.begin():
            domain_id = (await find_domain_view(session, site)).id

        async def fetch(limit: int, cursor: str | None) -> Page[ComparedEntryView]:
            """Read one page of differences for `siteatlas compare`."""
            async with get_session() as session, session.begin():
                return await compare_scans(session, domain_id, scans, limit=limit, cursor=cursor)

        async for page in read_pages(fetch, None, None):
            counts.update(entry.kind for entry in page.items)
            write_bytes(url_lines([_difference_line(entry) for entry in page.items]))
    words = ", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items()))
    print_message(f"{words}." if words else "The scans do not differ.")


def _difference_line(entry: ComparedEntryView) -> str:
    sign = URL_KINDS[entry.kind][0]
    details = f" ({', '.join(entry.fields)})" if entry.kind == ChangeKind.CHANGED else ""
    return f"{sign} {entry.url}{details}"


class Where(StrEnum):
    """Where a URL was found."""

    SITE = "site"
    OTHER = "other"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class UrlSide:
    """One side of a comparison: its URLs in batches, as often as needed, and what they mean.

    `key` says by what URLs are compared, such as the URL itself or its path.
    """

    batches: Callable[[], AsyncIterator[Sequence[str]]]
    key: Callable[[str], str]

    async def hashed(self) -> AsyncIterator[tuple[Sequence[str], list[int]]]:
        """The URLs in batches, with the hashes of their keys."""
        async for urls in self.batches():
            yield urls, url_hashes(map(self.key, urls))


async def compared(site: UrlSide, other: UrlSide) -> AsyncIterator[tuple[Where, list[str]]]:
    """Each different URL once, in batches: those of the site first, then those of the other."""
    in_other, in_site = HashArrays(), HashArrays()
    async for _urls, hashes in other.hashed():
        for number in hashes:
            in_other.add(number)
    async for urls, hashes in site.hashed():
        pairs = zip(urls, hashes, strict=True)
        new = [(url, number) for url, number in pairs if in_site.add(number)]
        yield Where.SITE, [url for url, number in new if number not in in_other]
        yield Where.BOTH, [url for url, number in new if number in in_other]
    named = HashArrays()
    async for urls, hashes in other.hashed():
        pairs = zip(urls, hashes, strict=True)
        only = [url for url, number in pairs if number not in in_site and named.add(number)]
        yield Where.OTHER, only


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


ROWS_PER_READ = 2_000
SIGNS = {Where.SITE: "+", Where.OTHER: "-", Where.BOTH: "="}


class Shown(StrEnum):
    """Which URLs of a comparison to print."""

    DIFFERENCES = "differences"
    SITE = "site"
    OTHER = "other"
    BOTH = "both"
    ALL = "all"


app = typer.Typer(rich_markup_mode=None)


@app.command()
def compare(
    site: SiteArgument,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="OTHER",
            help="A file with one URL per line, or CSV with a column named url; - for stdin; or "
            "another site.",
        ),
    ] = None,
    *,
    from_scan: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="SCAN", min=1, help="Compare two scans of SITE: the earlier one."
        ),
    ] = None,
    to_scan: Annotated[
        int | None, typer.Option("--to", metavar="SCAN", min=1, help="The later scan.")
    ] = None,
    show: Annotated[
        Shown,
        typer.Option(
            help="Which URLs to print: only in the site (site, +), only in the other (other, -), "
            "in both (both, =), the first two (differences), or all. A single kind is printed "
            "without its sign."
        ),
    ] = Shown.DIFFERENCES,
) -> None:
    """Compare the stored URLs of SITE with a file or another site, or compare two of its scans.

    Files are compared by full URL, sites by path and query. Each URL is printed once; the counts
    go to stderr. Differences between scans use the same signs as siteatlas changes.
    Example: siteatlas compare example.com urls.txt --show other
    """
    if other is not None and from_scan is None and to_scan is None:
        run(_compare(prepare(), site, other, show))
    elif other is None and from_scan is not None and to_scan is not None:
        run(print_scan_differences(prepare(), site, (from_scan, to_scan)))
    else:
        raise InputError("Use either OTHER, or both --from and --to.")


async def _compare(settings: Settings, site: str, other: str, show: Shown) -> None:
    counts = Counter[Where]()
    async with opened(settings):
        with _list_file(other) as path:
            key = _whole_url if path else _path_and_query
            left = UrlSide(SiteUrls(await _domain_id(site)), key)
            source = ListUrls(path) if path else SiteUrls(await _other_id(other))
            right = UrlSide(source, key)
            async for where, urls in compared(left, right):
                counts[where] += len(urls)
                _write_urls(where, urls, show)
    if isinstance(source, ListUrls):
        source.warn()
    print_message(
        f"Only in {site}: {counts[Where.SITE]}. Only in {other}: {counts[Where.OTHER]}. "
        f"In both: {counts[Where.BOTH]}."
    )


async def _domain_id(site: str) -> UUID:
    async with get_session() as session, session.begin():
        return (await find_domain_view(session, site)).id


async def _other_id(other: str) -> UUID:
    """The id of the second site of `siteatlas compare`; the error says that no file fits either."""
    try:
        return await _domain_id(other)
    except (AddressError, DomainNotFound) as error:
        raise InputError(_why_nothing(other)) from error


def _why_nothing(other: str) -> str:
    # Unlike its counterpart in pathlib, this does not raise for a name that is too long.
    if os.path.isdir(other):  # noqa: PTH112
        return f"{other} is a directory, not a file."
    return f"{other}: no stored site and no file has this name."


@contextmanager
def _list_file(other: str) -> Iterator[Path | None]:
    """The file of a list, which is read twice; stdin or a pipe is copied. None for a site."""
    path = None if other == STDIN else local_path(other)
    if other != STDIN and (path is None or not path.is_fifo()):
        yield path
        return
    source = path.open("rb") if path else nullcontext(sys.stdin.buffer)
    with source as file, tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        yield Path(copy.name)


class SiteUrls:
    """The listed URLs of a site, read in short transactions."""

    def __init__(self, domain_id: UUID) -> None:
        self._source = source_of_urls(domain_id, UrlFilter())

    async def __call__(self) -> AsyncIterator[Sequence[str]]:
        place = None
        while True:
            async with get_session() as session, session.begin():
                found = await read_urls(session, self._source, place, ROWS_PER_READ)
            yield [view.url for view in found.views]
            place = found.place
            if place is None:
                return


def _whole_url(url: str) -> str:
    return url


def _path_and_query(url: str) -> str:
    after_scheme = url.partition("://")[2]
    return "/" + after_scheme.partition("/")[2]


def _write_urls(where: Where, urls: list[str], show: Shown) -> None:
    if show.value == where.value:
        write_bytes(url_lines(urls))
    elif show is Shown.ALL or (show is Shown.DIFFERENCES and where is not Where.BOTH):
        write_bytes(url_lines([f"{SIGNS[where]} {url}" for url in urls]))
