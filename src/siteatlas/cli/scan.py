"""`siteatlas scan`: read the sitemaps of a site now and print what they hold."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated

import typer

from siteatlas.cli.border import INTERRUPTED, report, run
from siteatlas.cli.entry_stream import EntryWriter, write_nothing, write_objects, write_urls
from siteatlas.cli.output import Column, cell_text, say, write_json, write_table
from siteatlas.cli.preparation import prepare
from siteatlas.cli.progress import ProgressLine
from siteatlas.cli.scan_report import ReportKeeper, ScanReport
from siteatlas.errors import SiteatlasError
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.politeness import Politeness
from siteatlas.scanner.analyzer import ScanOptions, SitemapAnalyzer
from siteatlas.scanner.events import EntriesRead
from siteatlas.settings import Settings


class ScanFormat(StrEnum):
    """The forms of a scan's result; `urls` and `jsonl` are written while the scan runs."""

    TABLE = "table"
    URLS = "urls"
    JSON = "json"
    JSONL = "jsonl"


class Probe(StrEnum):
    """Whether usual places are tried even if robots.txt names sitemaps."""

    AUTO = "auto"
    FULL = "full"


WRITERS: dict[ScanFormat, EntryWriter] = {
    ScanFormat.TABLE: write_nothing,
    ScanFormat.JSON: write_nothing,
    ScanFormat.URLS: write_urls,
    ScanFormat.JSONL: write_objects,
}
SITEMAP_COLUMNS = [
    Column("SITEMAP"),
    Column("TYPE"),
    Column("FOUND BY"),
    Column("URLS", right=True),
    Column("OUTCOME"),
    Column("ERROR"),
]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def scan(
    site: Annotated[str, typer.Argument(help="A host such as example.com, or a sitemap's URL.")],
    *,
    format: Annotated[ScanFormat, typer.Option(help="What to print on stdout.")] = ScanFormat.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    max_urls: Annotated[
        int | None, typer.Option(min=1, max=50_000_000, help="Stop after so many URLs.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="A private address that may be contacted."),
    ] = None,
    user_agent: Annotated[
        str | None,
        typer.Option(help="How to introduce ourselves.  [env: SITEATLAS_USER_AGENT]"),
    ] = None,
    probe: Annotated[
        Probe, typer.Option(help="Try the usual places only if need be, or always.")
    ] = Probe.AUTO,
) -> None:
    """Read the sitemaps of SITE now and print what they hold. Nothing is stored.

    Example: siteatlas scan example.com --format urls > urls.txt
    """
    settings = prepare(user_agent=user_agent)
    policy = _policy(settings, allow or [])
    address = parse_site(site)
    policy.check(address)
    options = ScanOptions(
        max_urls=max_urls, probe=probe.value, robots_unreachable=settings.robots_unreachable
    )
    chosen = ScanFormat.JSON if as_json else format
    keeper = ReportKeeper(address.domain)
    analyzer = _analyzer(settings, policy)
    with ProgressLine() as progress:
        error = run(_read(analyzer, address, options, keeper, WRITERS[chosen], progress))
        seconds = progress.seconds
    _finish(keeper.report, error, chosen, seconds)


def _policy(settings: Settings, allow: list[str]) -> EgressPolicy:
    policy = EgressPolicy.from_text(settings.egress_allow)
    if allow:
        policy = policy.with_allowed(*allow)
        say(f"Allowed for this scan: {', '.join(allow)}")
    return policy


def _analyzer(settings: Settings, policy: EgressPolicy) -> SitemapAnalyzer:
    politeness = Politeness(settings.host_delay, settings.host_connections)
    return SitemapAnalyzer(policy, politeness, user_agent=settings.user_agent)


async def _read(
    analyzer: SitemapAnalyzer,
    address: WebAddress,
    options: ScanOptions,
    keeper: ReportKeeper,
    write: EntryWriter,
    progress: ProgressLine,
) -> SiteatlasError | None:
    """Drive the scan to its end; an interrupt ends it early, with what it has."""
    try:
        async with aclosing(analyzer.scan(address, options)) as events:
            async for event in events:
                keeper.observe(event)
                if isinstance(event, EntriesRead):
                    write(event)
                progress.show(lambda: _progress_text(keeper, progress.seconds))
    except asyncio.CancelledError:
        keeper.report.status = "cancelled"
    except SiteatlasError as error:
        keeper.report.fail(error)
        return error
    else:
        keeper.report.status = "completed"
    return None


def _progress_text(keeper: ReportKeeper, seconds: float) -> str:
    found = keeper.report
    rate = found.url_count / seconds if seconds else 0
    return (
        f"{found.site}: {len(found.sitemaps)} of {keeper.documents_expected} documents, "
        f"{found.url_count:,} URLs, {rate:,.0f} a second, {seconds:.0f} s"
    )


def _finish(
    found: ScanReport, error: SiteatlasError | None, format: ScanFormat, seconds: float
) -> None:
    if format is ScanFormat.JSON:
        write_json(found)
    elif format is ScanFormat.TABLE and found.sitemaps:
        _write_sitemaps(found)
    if error is not None:
        report(error)
        raise typer.Exit(error.exit_code)
    _say_summary(found, seconds)
    if found.status == "cancelled":
        say("Interrupted; the result is not complete.")
        raise typer.Exit(INTERRUPTED)


def _write_sitemaps(found: ScanReport) -> None:
    write_table(
        SITEMAP_COLUMNS,
        (
            (s.url, s.type, s.discovery_method, s.url_count, s.outcome, s.error_code)
            for s in found.sitemaps
        ),
    )


def _say_summary(found: ScanReport, seconds: float) -> None:
    rate = found.url_count / seconds if seconds else 0
    say(
        f"{found.site}: {found.url_count:,} URLs in {len(found.sitemaps):,} sitemaps, "
        f"{seconds:.1f} s, {rate:,.0f} URLs a second."
    )
    for problem in found.problems:
        where = f" in {cell_text(problem.url)}" if problem.url else ""
        what = f": {problem.detail}" if problem.detail else ""
        say(f"  {problem.code} ({problem.count}){where}{what}")
    if found.status == "completed":
        say(f"Watch this site: siteatlas domains add {found.site}")
