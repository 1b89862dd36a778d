"""The options of `siteatlas scan`, and what they make of the settings: format, policy, analyzer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.cli.scan.output import EntryFilter, ScanFormat
from siteatlas.cli.terminal.options import FailOn
from siteatlas.cli.terminal.output import is_terminal, print_message
from siteatlas.errors import ConfigurationError, InputError
from siteatlas.net.client import Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import DnsResolver, configured_proxy, read_header_lines
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.reading.entries import read_date
from siteatlas.scanner.report import ScanReport
from siteatlas.settings import MAX_PAGES, Settings

# Not more than documents of a site are read at the same time.
MAX_PROCESSES = 4
STREAMED = frozenset({ScanFormat.URLS, ScanFormat.JSONL, ScanFormat.CSV})


class Probe(StrEnum):
    """How hard a scan looks for sitemaps."""

    QUICK = "quick"
    AUTO = "auto"
    FULL = "full"


def _read_since(text: str) -> datetime:
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
        metavar="HOST[:PORT]",
        help="Allow this host, even if it is private; without PORT, on 80 and 443. Repeatable.",
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
    Probe,
    typer.Option(
        help="Try common sitemap paths only if needed (auto), only the usual six then (quick), or "
        "always (full)."
    ),
]


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What one `siteatlas scan` writes, in which format and where, and what counts as a failure.

    `readers` is how many processes may read documents beside the first one.
    """

    format: ScanFormat
    output: Path | None
    max_urls: int | None
    wanted: EntryFilter
    timeout: float | None
    fail_on: FailOn
    readers: int = 0

    @property
    def is_streamed(self) -> bool:
        """Whether the format is written while the scan runs, not at its end."""
        return self.format in STREAMED

    @property
    def writes_to_terminal(self) -> bool:
        """Whether the scan writes its data to a terminal."""
        return self.output is None and is_terminal(sys.stdout)

    def is_failure(self, report: ScanReport) -> bool:
        """Whether `--fail-on` makes a finished scan a failure."""
        return self.fail_on.counts_as_failure(
            partial=report.partial, problems=bool(report.problems)
        )


def scan_format(format: ScanFormat | None, *, as_json: bool) -> ScanFormat:
    """The output format of a scan from `--format` and `--json`; raises InputError for two."""
    if not as_json:
        return format or ScanFormat.TABLE
    if format not in {None, ScanFormat.JSON}:
        raise InputError(f"--json and --format {format} cannot be combined.")
    return ScanFormat.JSON


def policy_with_allowed(usual: EgressPolicy, allow: list[str]) -> EgressPolicy:
    """The egress policy of a scan, with the hosts given by `--allow`."""
    if not allow:
        return usual
    with _naming_option("--allow"):
        policy = usual.with_allowed(*allow)
    print_message(f"Allowed for this scan: {', '.join(allow)}")
    return policy


def scan_analyzer(
    settings: Settings, policy: EgressPolicy, header: list[str], rate: float | None
) -> SitemapAnalyzer:
    """The analyzer of a scan, with the proxy, headers and rate of its options."""
    proxy = configured_proxy(settings)
    if proxy is not None:
        print_message(f"Using the proxy {proxy}, which resolves the host names.")
    return SitemapAnalyzer(
        policy,
        _scan_politeness(settings, rate),
        user_agent=settings.user_agent,
        headers=_request_headers(header, policy),
        proxy=proxy,
        resolver=DnsResolver(settings.name_servers),
    )


def _request_headers(lines: list[str], policy: EgressPolicy) -> dict[str, str]:
    with _naming_option("--header"):
        headers = read_header_lines(lines)
    if headers and all(rule.by_wildcard for rule in policy.rules):
        raise ConfigurationError("Headers are sent only to hosts named with --allow.")
    return headers


def _scan_politeness(settings: Settings, rate: float | None) -> Politeness:
    if rate is not None:
        # An explicit rate applies to every host.
        return Politeness(1 / rate, settings.host_connections, exempt_own=False)
    return Politeness(settings.host_delay, settings.host_connections)


@contextmanager
def _naming_option(option: str) -> Iterator[None]:
    try:
        yield
    except (ConfigurationError, InputError) as error:
        raise ConfigurationError(f"{option}: {error.message}") from error
