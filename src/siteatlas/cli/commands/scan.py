"""`siteatlas scan`: read the sitemaps of sites or files now, and print them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import typer

from siteatlas.cli.scan.live_view import LiveView
from siteatlas.cli.scan.messages import (
    print_filtered_count,
    print_scan_error,
    print_skipped_sitemaps,
    print_summary,
    print_summary_line,
    print_unfetched_children,
)
from siteatlas.cli.scan.options import (
    STREAMED,
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
    ProcessesOption,
    QuietOption,
    RateOption,
    ScanRequest,
    SinceOption,
    SitemapsOption,
    SitemapsSinceOption,
    SitesArgument,
    SkipSitemapsOption,
    TimeoutOption,
    UserAgentOption,
    VerboseOption,
    policy_with_allowed,
    scan_analyzer,
    scan_format,
)
from siteatlas.cli.scan.output import DataSink, EntryFilter, ScanFormat, encoders_for, open_sink
from siteatlas.cli.scan.runner import (
    ScanReaders,
    ScanRunner,
    ScanTarget,
    ScanTargets,
    reader_count,
    single_target,
)
from siteatlas.cli.terminal.context import current, prepare, say_less, say_more
from siteatlas.cli.terminal.errors import INTERRUPTED, quiet_interrupts, run, stop_on_signals, trace
from siteatlas.cli.terminal.options import STDIN, FailOn, FailOnOption
from siteatlas.cli.terminal.output import counted, is_terminal, print_message
from siteatlas.errors import InputError, OutputClosed, PartialScan
from siteatlas.net.egress import EgressPolicy
from siteatlas.scanner.crawl.readers import ReaderPool
from siteatlas.scanner.options import ChildFilter, ScanOptions

app = typer.Typer(rich_markup_mode=None)


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
    sitemaps: SitemapsOption = None,
    skip_sitemaps: SkipSitemapsOption = None,
    sitemaps_since: SitemapsSinceOption = None,
    allow: AllowOption = None,
    user_agent: UserAgentOption = None,
    header: HeaderOption = None,
    rate: RateOption = None,
    probe: ProbeOption = Probe.AUTO,
    processes: ProcessesOption = None,
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
    chosen = scan_format(format, as_json=as_json)
    # What a person must know of a denial or a pause is said at the end of the scan.
    settings = prepare(log_level="error", user_agent=user_agent)
    usual = EgressPolicy.from_text(settings.egress_allow)
    policy = policy_with_allowed(usual, allow or [])
    wanted = EntryFilter.of(since, include or [], exclude or [])
    options = ScanOptions(
        # With a filter, the limit is for what passes it.
        max_urls=max_urls if wanted.keeps_all else None,
        probe=probe.value,
        robots_unreachable=settings.robots_unreachable,
        # A list of URLs should rather be fast.
        find_duplicates=chosen not in STREAMED or bool(current().verbosity),
        child_filter=ChildFilter.of(sitemaps, skip_sitemaps, sitemaps_since),
    )
    analyzer = scan_analyzer(settings, policy, header or [], rate)
    targets = ScanTargets(analyzer, policy, usual, options, only=only)
    first = _target(sites[0], targets) if _is_one(sites) else None
    kept, readers = None if wanted.keeps_all else max_urls, reader_count(processes, max_urls)
    request = ScanRequest(chosen, output, kept, wanted, timeout, fail_on, readers)
    with quiet_interrupts():
        raise typer.Exit(run(_scan(request, targets, first, sites)))


def _is_one(sites: list[str]) -> bool:
    if STDIN in sites and len(sites) > 1:
        raise InputError("- reads all sites from stdin and cannot be combined with other sites.")
    return sites != [STDIN] and len(sites) == 1


def _target(site: str, targets: ScanTargets) -> ScanTarget:
    try:
        return targets.of(site)
    except InputError as error:
        trace(error)
        print_scan_error(error, site, targets.policy)
        raise typer.Exit(error.exit_code) from error


async def _scan(
    request: ScanRequest, targets: ScanTargets, first: ScanTarget | None, sites: list[str]
) -> int:
    form = encoders_for(request.format, many=first is None, terminal=request.writes_to_terminal)
    sink = open_sink(request.output)
    runner = ScanRunner(
        sink,
        form,
        request.wanted,
        max_urls=request.max_urls,
        timeout=request.timeout,
        hold_reports=request.writes_to_terminal,
    )
    view = LiveView(runner)

    def discard_output() -> None:
        sink.abandon()
        view.restore_terminal()

    listed = targets.listed(sites) if first is None else single_target(first)
    try:
        async with ReaderPool(request.readers) as pool:
            if request.readers:
                targets.readers = ScanReaders(pool, form.entries, request.wanted)
            with stop_on_signals(runner.stop, discard_output):
                kept = await _run_scans(runner, listed, request, sink, view)
    except OutputClosed:
        return 0
    _say_ends(runner, targets, many=first is None)
    print_filtered_count(request.wanted)
    if kept:
        _say_written(runner, request)
    if runner.interrupted:
        print_message("Interrupted; the result is incomplete.")
        return INTERRUPTED
    if first is not None and first.address is not None and runner.ended[0].error is None:
        targets.say_how_to_watch(first.address)
    return _exit_code(runner, targets, request)


async def _run_scans(
    runner: ScanRunner,
    listed: AsyncIterator[ScanTarget],
    request: ScanRequest,
    sink: DataSink,
    view: LiveView,
) -> bool:
    keep = False
    try:
        async with view.show_progress(
            data_on_terminal=request.writes_to_terminal and request.is_streamed
        ):
            await runner.run(listed)
        await runner.finish()
        found_something = any(ended.error is None for ended in runner.ended)
        keep = found_something or request.format is ScanFormat.JSON
    finally:
        await sink.close(keep=keep)
    return keep


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
        print_skipped_sitemaps(ended.builder.report)


def _say_written(runner: ScanRunner, request: ScanRequest) -> None:
    if request.output is None or str(request.output) == STDIN:
        return
    urls = sum(ended.builder.report.url_count for ended in runner.ended)
    what = counted(urls, "URL") if request.is_streamed else "the report"
    print_message(f"Wrote {what} to {request.output}.")


def _exit_code(runner: ScanRunner, targets: ScanTargets, request: ScanRequest) -> int:
    codes = [ended.error.exit_code for ended in runner.ended if ended.error is not None]
    reports = [ended.builder.report for ended in runner.ended if ended.error is None]
    failed = PartialScan.exit_code if any(map(request.is_failure, reports)) else 0
    return max([*codes, targets.worst_refusal, failed])
