"""The arguments and options of `siteatlas scan`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.cli.scanning.formats import ScanFormat
from siteatlas.errors import InputError
from siteatlas.scanner.reading.entries import read_date
from siteatlas.settings import MAX_PAGES

# Not more than documents of a site are read at the same time.
MAX_PROCESSES = 4


class Probe(StrEnum):
    """Whether common sitemap paths are tried even if robots.txt lists sitemaps."""

    AUTO = "auto"
    FULL = "full"


def _read_since(text: str) -> datetime:
    """Parse the date given with `--since` or `--sitemaps-since` of `siteatlas scan`."""
    moment = read_date(text.strip())
    if moment is None:
        raise typer.BadParameter("expected a date such as 2026-01-31 or 2026-01-31T08:00:00Z.")
    return moment


SitesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SITE",
        help="A host such as example.com, a sitemap URL, a file such as ./sitemap.xml.gz, "
        "or - to read a list of sites from stdin. Repeatable.",
    ),
]
OnlyOption = Annotated[
    bool,
    typer.Option(
        "--only",
        help="If SITE is a sitemap URL, read only that sitemap, and its children if it is an "
        "index.",
    ),
]
FormatOption = Annotated[
    ScanFormat | None, typer.Option("--format", help="Output format.  [default: table]")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of stdout."),
]
MaxUrlsOption = Annotated[
    int | None, typer.Option(min=1, max=MAX_PAGES, help="Stop after N URLs per site.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=1_000_000,
        metavar="SECONDS",
        help="Stop scanning a site after this time and keep what was read.",
    ),
]
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        metavar="DATE",
        parser=_read_since,
        help="Keep only URLs with a lastmod on or after DATE, such as 2026-01-31.",
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Keep only URLs that match PATTERN, such as '*/blog/*'. Repeatable.",
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN", help="Leave out URLs that match PATTERN, such as '*.pdf'. Repeatable."
    ),
]
SitemapsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Of the sitemaps in an index, read only those whose URL matches PATTERN, such as "
        "'*/blog-*'. Repeatable.",
    ),
]
SkipSitemapsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Do not read sitemaps in an index whose URL matches PATTERN, such as '*/tag-*'. "
        "Repeatable.",
    ),
]
SitemapsSinceOption = Annotated[
    datetime | None,
    typer.Option(
        metavar="DATE",
        parser=_read_since,
        help="Do not read sitemaps that an index lists with a lastmod before DATE.",
    ),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Allow connections to this host and port, even if the address is private. Repeatable.",
    ),
]
UserAgentOption = Annotated[
    str | None, typer.Option(help="User-Agent header to send.  [env: SITEATLAS_USER_AGENT]")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="'NAME: VALUE'", help="Header to send to hosts given with --allow. Repeatable."
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(min=0.001, max=1000, help="Maximum number of requests per second per host."),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_PROCESSES,
        help="Number of processes that read the sitemaps of a large site: by default 2, or 1 on "
        "one core; always 1 with --max-urls.",
    ),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show log messages, and all problems with samples.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only.")]
ProbeOption = Annotated[
    Probe, typer.Option(help="Try common sitemap paths only if needed (auto), or always (full).")
]


def scan_format(format: ScanFormat | None, *, as_json: bool) -> ScanFormat:
    """The output format of a scan from `--format` and `--json`; raises InputError for two."""
    if not as_json:
        return format or ScanFormat.TABLE
    if format not in {None, ScanFormat.JSON}:
        raise InputError(f"--json and --format {format} cannot be combined.")
    return ScanFormat.JSON
