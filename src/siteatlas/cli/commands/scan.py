"""`siteatlas scan`: read the sitemaps of sites or files now, and print them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from siteatlas.cli.scanning.arguments import (
    AllowOption,
    ExcludeOption,
    FormatOption,
    HeaderOption,
    IncludeOption,
    JsonOption,
    MaxUrlsOption,
    OnlyOption,
    OutputOption,
    Probe,
    ProbeOption,
    QuietOption,
    RateOption,
    SinceOption,
    SitesArgument,
    TimeoutOption,
    UserAgentOption,
    VerboseOption,
    chosen_format,
)
from siteatlas.cli.scanning.entry_filter import EntryFilter
from siteatlas.cli.scanning.formats import ScanFormat, encoders_for
from siteatlas.cli.scanning.live_view import LiveView
from siteatlas.cli.scanning.messages import (
    print_filtered_count,
    print_scan_error,
    print_summary,
    print_summary_line,
    print_unfetched_children,
)
from siteatlas.cli.scanning.runner import ScanRunner
from siteatlas.cli.scanning.sinks import DataSink, open_sink
from siteatlas.cli.scanning.targets import STDIN, ScanTarget, ScanTargets
from siteatlas.cli.terminal.choices import counted
from siteatlas.cli.terminal.context import current, prepare, say_less, say_more
from siteatlas.cli.terminal.errors import INTERRUPTED, run, trace
from siteatlas.cli.terminal.options import FailOn, FailOnOption
from siteatlas.cli.terminal.output import is_terminal, print_message
from siteatlas.cli.terminal.signals import quiet_interrupts, stop_on_signals
from siteatlas.errors import (
    ConfigurationError,
    InputError,
    OutputClosed,
    PartialScan,
)
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.from_settings import configured_proxy
from siteatlas.net.operator_headers import read_header_lines
from siteatlas.net.politeness import Politeness
from siteatlas.net.resolver import DnsResolver
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.report import ScanReport
from siteatlas.settings import Settings

STREAMED = frozenset({ScanFormat.URLS, ScanFormat.JSONL, ScanFormat.CSV})

app = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class ScanCommand:
    """What to print of what is found, how and where, and what counts as a failure."""

    format: ScanFormat
    output: Path | None
    max_urls: int | None
    wanted: EntryFilter
    timeout: float | None
    fail_on: FailOn

    @property
    def streams(self) -> bool:
        """Whether data are written while the scan runs."""
        return self.format in STREAMED

    @property
    def on_terminal(self) -> bool:
        """Whether the data go to a terminal."""
        return self.output is None and is_terminal(sys.stdout)

    def fails(self, report: ScanReport) -> bool:
        """Whether a scan that found something is still a failure."""
        return self.fail_on.counts_as_failure(
            partial=report.partial, problems=bool(report.problems)
        )


@app.command()
def scan(
    sites: SitesArgument,
    *,
    only: OnlyOption = False,
    format: FormatOption = None,
    as_json: JsonOption = False,
    output: OutputOption = None,
    max_urls: MaxUrlsOption = None,
    timeout: TimeoutOption = None,
    fail_on: FailOnOption = FailOn.FAILED,
    since: SinceOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    allow: AllowOption = None,
    user_agent: UserAgentOption = None,
    header: HeaderOption = None,
    rate: RateOption = None,
    probe: ProbeOption = Probe.AUTO,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Read the sitemaps of SITE now and print what they list. Nothing is stored.

    Example: siteatlas scan example.com --format urls > urls.txt
    """
    if verbose:
        say_more()
    if quiet:
        say_less()
    chosen = chosen_format(format, as_json=as_json)
    settings = prepare(user_agent=user_agent)
    usual = EgressPolicy.from_text(settings.egress_allow)
    policy = _policy(usual, allow or [])
    wanted = EntryFilter.of(since, include or [], exclude or [])
    options = ScanOptions(
        # With a filter, the limit is for what passes it.
        max_urls=max_urls if wanted.keeps_all else None,
        probe=probe.value,
        robots_unreachable=settings.robots_unreachable,
        # Who asks for URLs wants them fast; who asks for a report wants all that is wrong.
        find_duplicates=chosen not in STREAMED or bool(current().verbosity),
    )
    analyzer = _analyzer(settings, policy, header or [], rate)
    targets = ScanTargets(analyzer, policy, usual, options, only=only)
    first = _target(sites[0], targets) if _is_one(sites) else None
    kept = None if wanted.keeps_all else max_urls
    scan_command = ScanCommand(chosen, output, kept, wanted, timeout, fail_on)
    with quiet_interrupts():
        code = run(_scan(scan_command, targets, first, sites))
    raise typer.Exit(code)


def _is_one(sites: list[str]) -> bool:
    """Whether one site or file is meant, rather than a list."""
    if STDIN in sites and len(sites) > 1:
        raise InputError("- reads all sites from stdin and cannot be combined with other sites.")
    return sites != [STDIN] and len(sites) == 1


def _policy(usual: EgressPolicy, allow: list[str]) -> EgressPolicy:
    if not allow:
        return usual
    with _named("--allow"):
        policy = usual.with_allowed(*allow)
    print_message(f"Allowed for this scan: {', '.join(allow)}")
    return policy


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Name the option whose value cannot be used."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error.message}") from error


def _target(site: str, targets: ScanTargets) -> ScanTarget:
    try:
        return targets.of(site)
    except InputError as error:
        trace(error)
        print_scan_error(error, site, targets.policy)
        raise typer.Exit(error.exit_code) from error


def _analyzer(
    settings: Settings, policy: EgressPolicy, header: list[str], rate: float | None
) -> SitemapAnalyzer:
    proxy = configured_proxy(settings)
    if proxy is not None:
        print_message(f"Using the proxy {proxy}, which resolves the host names.")
    return SitemapAnalyzer(
        policy,
        _pace(settings, rate),
        user_agent=settings.user_agent,
        headers=_headers(header, policy),
        proxy=proxy,
        resolver=DnsResolver(settings.name_servers),
    )


def _headers(lines: list[str], policy: EgressPolicy) -> dict[str, str]:
    with _named("--header"):
        headers = read_header_lines(lines)
    if headers and not policy.rules:
        raise ConfigurationError("Headers are sent only to hosts given with --allow.")
    return headers


def _pace(settings: Settings, rate: float | None) -> Politeness:
    if rate is not None:
        # A pace that was asked for by name holds for every host.
        return Politeness(1 / rate, settings.host_connections, exempt_own=False)
    return Politeness(settings.host_delay, settings.host_connections)


async def _scan(
    scan_command: ScanCommand, targets: ScanTargets, first: ScanTarget | None, sites: list[str]
) -> int:
    """Read everything, write it, say how it went; gives the exit code."""
    form = encoders_for(scan_command.format, many=first is None, terminal=scan_command.on_terminal)
    sink = open_sink(scan_command.output)
    runner = ScanRunner(
        sink,
        form,
        scan_command.wanted,
        max_urls=scan_command.max_urls,
        timeout=scan_command.timeout,
        hold_reports=scan_command.on_terminal,
    )
    view = LiveView(runner)

    def clean_up() -> None:
        sink.abandon()
        view.abandon()

    listed = targets.listed(sites) if first is None else _only(first)
    try:
        with stop_on_signals(runner.stop, clean_up):
            kept = await _run_scans(runner, listed, scan_command, sink, view)
    except OutputClosed:
        return 0
    _say_ends(runner, targets, many=first is None)
    print_filtered_count(scan_command.wanted)
    if kept:
        _say_written(runner, scan_command)
    if runner.interrupted:
        print_message("Interrupted; the result is incomplete.")
        return INTERRUPTED
    if first is not None and first.address is not None and runner.ended[0].error is None:
        targets.say_how_to_watch(first.address)
    return _exit_code(runner, targets, scan_command)


def _exit_code(runner: ScanRunner, targets: ScanTargets, scan_command: ScanCommand) -> int:
    codes = [ended.error.exit_code for ended in runner.ended if ended.error is not None]
    reports = [ended.builder.report for ended in runner.ended if ended.error is None]
    failed = PartialScan.exit_code if any(map(scan_command.fails, reports)) else 0
    return max([*codes, targets.worst_refusal, failed])


async def _run_scans(
    runner: ScanRunner,
    listed: AsyncIterator[ScanTarget],
    scan_command: ScanCommand,
    sink: DataSink,
    view: LiveView,
) -> bool:
    """Read and write everything; gives whether the output was kept."""
    keep = False
    try:
        async with view.shown(data_on_terminal=scan_command.on_terminal and scan_command.streams):
            await runner.run(listed)
        await runner.finish()
        found_something = any(ended.error is None for ended in runner.ended)
        keep = found_something or scan_command.format is ScanFormat.JSON
    finally:
        await sink.close(keep=keep)
    return keep


async def _only(target: ScanTarget) -> AsyncIterator[ScanTarget]:
    yield target


def _say_ends(runner: ScanRunner, targets: ScanTargets, *, many: bool) -> None:
    if not runner.ended:
        print_message("No site was scanned.")
    for ended in runner.ended:
        if ended.error is not None:
            typed = ended.target.name if many else ended.target.typed
            print_scan_error(ended.error, typed, targets.policy, may_be_file=not many)
        elif is_terminal(sys.stderr) and not many:
            print_summary(ended.builder.report, ended.builder.dated_count, ended.seconds)
        else:
            print_summary_line(ended.builder.report, ended.seconds)
        print_unfetched_children(ended.builder.report)


def _say_written(runner: ScanRunner, scan_command: ScanCommand) -> None:
    if scan_command.output is None or str(scan_command.output) == STDIN:
        return
    urls = sum(ended.builder.report.url_count for ended in runner.ended)
    what = counted(urls, "URL") if scan_command.streams else "the report"
    print_message(f"Wrote {what} to {scan_command.output}.")
