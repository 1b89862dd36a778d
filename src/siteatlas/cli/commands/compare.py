"""`siteatlas compare`: the stored URLs of a site against a list, another site or another scan."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from siteatlas.cli.commands.scan_differences import print_scan_differences
from siteatlas.cli.commands.url_comparison import UrlSide, Where, compared
from siteatlas.cli.commands.url_lists import ListUrls
from siteatlas.cli.scanning.local_paths import local_path
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import SiteArgument
from siteatlas.cli.terminal.output import print_message, url_lines, write_bytes
from siteatlas.cli.terminal.site_list import STDIN
from siteatlas.errors import AddressError, DomainNotFound, InputError
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.url_filters import UrlFilter
from siteatlas.insights.urls import read_urls, source_of_urls
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

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
    """Print a comparison for `siteatlas compare`."""
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
    """The id of a site that `siteatlas compare` names."""
    async with get_session() as session, session.begin():
        return (await find_domain_view(session, site)).id


async def _other_id(other: str) -> UUID:
    """The id of the second site of `siteatlas compare`; the error says that no file fits either."""
    try:
        return await _domain_id(other)
    except (AddressError, DomainNotFound) as error:
        raise InputError(_why_nothing(other)) from error


def _why_nothing(other: str) -> str:
    """Why the second argument of `siteatlas compare` is neither a stored site nor a file."""
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
    """A URL by itself, as it is compared with a list."""
    return url


def _path_and_query(url: str) -> str:
    """What a URL has after its host, as it is compared with that of another site."""
    after_scheme = url.partition("://")[2]
    return "/" + after_scheme.partition("/")[2]


def _write_urls(where: Where, urls: list[str], show: Shown) -> None:
    """Print the URLs of one kind if they are to be shown."""
    if show.value == where.value:
        write_bytes(url_lines(urls))
    elif show is Shown.ALL or (show is Shown.DIFFERENCES and where is not Where.BOTH):
        write_bytes(url_lines([f"{SIGNS[where]} {url}" for url in urls]))
