"""`siteatlas scan`: read the sitemaps of a site, a list of sites or a file now, and print them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.cli.border import INTERRUPTED, report, run
from siteatlas.cli.data_sink import DataSink, open_sink
from siteatlas.cli.entry_filter import EntryFilter
from siteatlas.cli.output import is_terminal, say
from siteatlas.cli.preparation import prepare
from siteatlas.cli.scan_forms import ScanFormat, form_of
from siteatlas.cli.scan_run import Conductor, ScanRun
from siteatlas.cli.scan_targets import STDIN, Target, Targets
from siteatlas.cli.scan_view import shown
from siteatlas.cli.scan_words import say_block, say_line
from siteatlas.cli.steady_pace import SteadyPace
from siteatlas.cli.stopping import stop_on_signals
from siteatlas.errors import ConfigurationError, OutputClosed
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.own_headers import read_header_lines
from siteatlas.net.politeness import Politeness
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.entries import read_date
from siteatlas.scanner.options import ScanOptions
from siteatlas.settings import Settings


class Probe(StrEnum):
    """Whether usual places are tried even if robots.txt names sitemaps."""

    AUTO = "auto"
    FULL = "full"


def _read_since(text: str) -> datetime:
    moment = read_date(text.strip())
    if moment is None:
        raise typer.BadParameter("a date such as 2026-01-31 or 2026-01-31T08:00:00Z is needed.")
    return moment


SiteArgument = Annotated[
    str,
    typer.Argument(
        help="A host such as example.com, a sitemap's URL, a file such as ./sitemap.xml.gz, "
        "or - for a list of sites on stdin."
    ),
]
FormatOption = Annotated[ScanFormat, typer.Option("--format", help="What to print.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where to, instead of stdout."),
]
MaxUrlsOption = Annotated[
    int | None, typer.Option(min=1, max=50_000_000, help="Stop after so many URLs of a site.")
]
SinceOption = Annotated[
    datetime | None,
    typer.Option(metavar="DATE", parser=_read_since, help="Only URLs with a lastmod from then on."),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Only URLs that fit, such as '*/blog/*'. Repeatable."),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="No URLs that fit, such as '*.pdf'. Repeatable."),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="A host of your own, which may be private. Repeatable."),
]
UserAgentOption = Annotated[
    str | None, typer.Option(help="How to introduce ourselves.  [env: SITEATLAS_USER_AGENT]")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(metavar="'NAME: VALUE'", help="Sent to hosts named by --allow. Repeatable."),
]
RateOption = Annotated[
    float | None,
    typer.Option(min=0.001, max=1000, help="Most requests a second to one host."),
]
ProbeOption = Annotated[
    Probe, typer.Option(help="Try the usual places only if need be, or always.")
]

app = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Wish:
    """What to print of what is found, how and where."""

    format: ScanFormat
    output: Path | None
    max_urls: int | None
    wanted: EntryFilter

    @property
    def streams(self) -> bool:
        """Whether data are written while the scan runs."""
        return self.format in {ScanFormat.URLS, ScanFormat.JSONL, ScanFormat.CSV}

    @property
    def on_terminal(self) -> bool:
        """Whether the data go to a terminal."""
        return self.output is None and is_terminal(sys.stdout)


@app.command()
def scan(
    site: SiteArgument,
    *,
    format: FormatOption = ScanFormat.TABLE,
    as_json: JsonOption = False,
    output: OutputOption = None,
    max_urls: MaxUrlsOption = None,
    since: SinceOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    allow: AllowOption = None,
    user_agent: UserAgentOption = None,
    header: HeaderOption = None,
    rate: RateOption = None,
    probe: ProbeOption = Probe.AUTO,
) -> None:
    """Read the sitemaps of SITE now and print what they hold. Nothing is stored.

    Example: siteatlas scan example.com --format urls > urls.txt
    """
    settings = prepare(user_agent=user_agent)
    policy = _policy(settings, allow or [])
    wanted = EntryFilter.of(since, include or [], exclude or [])
    options = ScanOptions(
        # With a filter, the limit is for what passes it.
        max_urls=max_urls if wanted.keeps_all else None,
        probe=probe.value,
        robots_unreachable=settings.robots_unreachable,
    )
    headers = _headers(header or [], policy)
    analyzer = SitemapAnalyzer(
        policy, _pace(settings, rate), user_agent=settings.user_agent, headers=headers
    )
    targets = Targets(analyzer, policy, options)
    first = None if site == STDIN else targets.of(site)
    chosen = ScanFormat.JSON if as_json else format
    wish = Wish(chosen, output, None if wanted.keeps_all else max_urls, wanted)
    raise typer.Exit(run(_scan(wish, targets, first)))


def _policy(settings: Settings, allow: list[str]) -> EgressPolicy:
    policy = EgressPolicy.from_text(settings.egress_allow)
    if allow:
        policy = policy.with_allowed(*allow)
        say(f"Allowed for this scan: {', '.join(allow)}")
    return policy


def _headers(lines: list[str], policy: EgressPolicy) -> dict[str, str]:
    headers = read_header_lines(lines)
    if headers and not policy.rules:
        raise ConfigurationError("Headers go only to hosts of your own. Name them with --allow.")
    return headers


def _pace(settings: Settings, rate: float | None) -> Politeness:
    if rate is not None:
        return SteadyPace(1 / rate, settings.host_connections)
    return Politeness(settings.host_delay, settings.host_connections)


async def _scan(wish: Wish, targets: Targets, first: Target | None) -> int:
    """Read everything, write it, say how it went; gives the exit code."""
    form = form_of(wish.format, many=first is None, terminal=wish.on_terminal)
    sink = open_sink(wish.output)
    conductor = Conductor(
        sink, form, wish.wanted, max_urls=wish.max_urls, hold_reports=wish.on_terminal
    )
    listed = targets.listed() if first is None else _only(first)
    try:
        with stop_on_signals(conductor.stop):
            await _conduct(conductor, listed, wish, sink)
    except OutputClosed:
        return 0
    _say_ends(conductor, wish.wanted, many=first is None)
    if conductor.interrupted:
        say("Interrupted; the result is not complete.")
        return INTERRUPTED
    codes = [ended.error.exit_code for ended in conductor.ended if ended.error is not None]
    return max([*codes, targets.worst_refusal])


async def _conduct(
    conductor: Conductor, listed: AsyncIterator[Target], wish: Wish, sink: DataSink
) -> None:
    keep = False
    try:
        async with shown(conductor, data_on_terminal=wish.on_terminal and wish.streams):
            await conductor.run(listed)
        await conductor.finish()
        found_something = any(ended.error is None for ended in conductor.ended)
        keep = found_something or wish.format is ScanFormat.JSON
    finally:
        await sink.close(keep=keep)


async def _only(target: Target) -> AsyncIterator[Target]:
    yield target


def _say_ends(conductor: Conductor, wanted: EntryFilter, *, many: bool) -> None:
    if not conductor.ended:
        say("No site was scanned.")
    for ended in conductor.ended:
        if ended.error is not None:
            report(ended.error, about=ended.target.name if many else None)
        elif is_terminal(sys.stderr) and not many:
            say_block(ended.keeper.report, ended.keeper.dated_count, ended.seconds)
        else:
            say_line(ended.keeper.report, ended.seconds)
    if wanted.undated:
        say(f"Left out: {wanted.undated:,} URLs without a lastmod.")
    watchable = _watchable(conductor.ended)
    if watchable and not conductor.interrupted and not many:
        say(f"Watch this site: siteatlas domains add {watchable}")


def _watchable(ended: list[ScanRun]) -> str | None:
    return next((one.target.watchable for one in ended if one.error is None), None)
