"""`siteatlas scan`: read the sitemaps of a site, a list of sites or a file now, and print them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.cli.border import INTERRUPTED, run, trace
from siteatlas.cli.data_sink import DataSink, open_sink
from siteatlas.cli.entry_filter import EntryFilter
from siteatlas.cli.output import is_terminal, say
from siteatlas.cli.preparation import prepare
from siteatlas.cli.scan_faults import say_fault
from siteatlas.cli.scan_forms import ScanFormat, form_of
from siteatlas.cli.scan_run import Conductor
from siteatlas.cli.scan_targets import STDIN, Target, Targets
from siteatlas.cli.scan_view import View
from siteatlas.cli.scan_words import say_block, say_left_out, say_line
from siteatlas.cli.sitemap_tree import count_of
from siteatlas.cli.steady_pace import SteadyPace
from siteatlas.cli.stopping import quiet_interrupts, stop_on_signals
from siteatlas.errors import AddressError, ConfigurationError, OutputClosed
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
    usual = EgressPolicy.from_text(settings.egress_allow)
    policy = _policy(usual, allow or [])
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
    targets = Targets(analyzer, policy, usual, options)
    first = None if site == STDIN else _target(site, targets)
    chosen = ScanFormat.JSON if as_json else format
    wish = Wish(chosen, output, None if wanted.keeps_all else max_urls, wanted)
    with quiet_interrupts():
        code = run(_scan(wish, targets, first))
    raise typer.Exit(code)


def _policy(usual: EgressPolicy, allow: list[str]) -> EgressPolicy:
    if not allow:
        return usual
    with _named("--allow"):
        policy = usual.with_allowed(*allow)
    say(f"Allowed for this scan: {', '.join(allow)}")
    return policy


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Name the option whose value cannot be used."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error.message}") from error


def _target(site: str, targets: Targets) -> Target:
    try:
        return targets.of(site)
    except AddressError as error:
        trace(error)
        say_fault(error, site, targets.policy)
        raise typer.Exit(error.exit_code) from error


def _headers(lines: list[str], policy: EgressPolicy) -> dict[str, str]:
    with _named("--header"):
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
    view = View(conductor)

    def clean_up() -> None:
        sink.abandon()
        view.abandon()

    listed = targets.listed() if first is None else _only(first)
    try:
        with stop_on_signals(conductor.stop, clean_up):
            kept = await _conduct(conductor, listed, wish, sink, view)
    except OutputClosed:
        return 0
    _say_ends(conductor, targets, many=first is None)
    say_left_out(wish.wanted)
    if kept:
        _say_written(conductor, wish)
    if conductor.interrupted:
        say("Interrupted; the result is not complete.")
        return INTERRUPTED
    if first is not None and first.address is not None and conductor.ended[0].error is None:
        targets.say_how_to_watch(first.address)
    codes = [ended.error.exit_code for ended in conductor.ended if ended.error is not None]
    return max([*codes, targets.worst_refusal])


async def _conduct(
    conductor: Conductor, listed: AsyncIterator[Target], wish: Wish, sink: DataSink, view: View
) -> bool:
    """Read and write everything; gives whether the output was kept."""
    keep = False
    try:
        async with view.shown(data_on_terminal=wish.on_terminal and wish.streams):
            await conductor.run(listed)
        await conductor.finish()
        found_something = any(ended.error is None for ended in conductor.ended)
        keep = found_something or wish.format is ScanFormat.JSON
    finally:
        await sink.close(keep=keep)
    return keep


async def _only(target: Target) -> AsyncIterator[Target]:
    yield target


def _say_ends(conductor: Conductor, targets: Targets, *, many: bool) -> None:
    if not conductor.ended:
        say("No site was scanned.")
    for ended in conductor.ended:
        if ended.error is not None:
            typed = ended.target.name if many else ended.target.typed
            say_fault(ended.error, typed, targets.policy, may_be_file=not many)
        elif is_terminal(sys.stderr) and not many:
            say_block(ended.keeper.report, ended.keeper.dated_count, ended.seconds)
        else:
            say_line(ended.keeper.report, ended.seconds)


def _say_written(conductor: Conductor, wish: Wish) -> None:
    if wish.output is None or str(wish.output) == STDIN:
        return
    urls = sum(ended.keeper.report.url_count for ended in conductor.ended)
    what = count_of(urls, "URL") if wish.streams else "the report"
    say(f"Wrote {what} to {wish.output}.")
