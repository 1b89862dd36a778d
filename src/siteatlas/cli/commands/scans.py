"""`siteatlas scans` and `siteatlas problems`: the scans of a site, and what is wrong with it."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from siteatlas.catalog.problems import ProblemFilter, ProblemState, ProblemView, list_problems
from siteatlas.catalog.scans import ScanView, list_scans
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.lines import ProblemLines, ShownProblem, counts_by_kind
from siteatlas.cli.terminal.options import (
    SiteArgument,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    ListFormat,
    print_message,
    write_line,
)
from siteatlas.cli.terminal.paged_list import (
    FetchPage,
    ListRequest,
    TableLayout,
    print_list,
    read_pages,
    with_list_options,
)
from siteatlas.cli.terminal.tables import terminal_width

PROBLEMS: TableLayout[ProblemView] = TableLayout(
    columns=(),
    none="No problem of this site is stored.",
    none_matches="No problem of this site matches.",
    record=ProblemView,
)

problems_app = typer.Typer(rich_markup_mode=None)


@problems_app.command()
@with_list_options
def problems(
    site: SiteArgument,
    *,
    code: Annotated[str | None, typer.Option(help="Only problems with this code.")] = None,
    sitemap: Annotated[
        str | None, typer.Option(metavar="URL", help="Only problems in this sitemap.")
    ] = None,
    state: Annotated[
        ProblemState,
        typer.Option(help="Current problems, resolved problems, or all."),
    ] = ProblemState.CURRENT,
    request: ListRequest,
) -> None:
    """List the stored problems in the sitemaps of SITE, grouped by code, with samples.

    Example: siteatlas problems example.com --code lastmod_invalid
    """
    read = partial(list_problems, wanted=ProblemFilter(code, sitemap, state))
    shape = PROBLEMS.filtered_by(code, sitemap, None if state is ProblemState.CURRENT else state)
    write = _write_groups if request.format is ListFormat.TABLE else None
    run(print_list(prepare(), request, shape, read, site=site, write=write))


async def _write_groups(
    request: ListRequest, fetch: FetchPage[ProblemView], shape: TableLayout[ProblemView]
) -> None:
    """Problems under their codes; a table has no room for samples."""
    lines, cursor, printed = ProblemLines(terminal_width(sys.stdout)), None, 0
    async for page in read_pages(fetch, request.limit, request.cursor):
        cursor = page.next_cursor
        printed += len(page.items)
        for item in page.items:
            for line in lines.of(_shown_problem(item)):
                write_line(line)
    if not printed:
        print_message(shape.none)
    if cursor is not None:
        print_message(f"More items: use --all, or continue with --cursor {cursor}")


def _shown_problem(item: ProblemView) -> ShownProblem:
    first, last = item.first_scan_id, item.last_scan_id
    scans = f"scan {last}" if first == last else f"scans {first} to {last}"
    over = f", resolved {item.resolved_at:%Y-%m-%d %H:%M}Z" if item.resolved_at else ""
    return ShownProblem(item.code, item.sitemap, item.count, item.samples, scans + over)


def _shown_state(scan: ScanView) -> str:
    """The state of a scan in `siteatlas scans`: partial, if a published scan lost something."""
    return "partial" if scan.partial and scan.published_seq is not None else scan.state


def _duration(scan: ScanView) -> str | None:
    """How long a scan took; None while it runs."""
    if scan.finished_at is None:
        return None
    return f"{(scan.finished_at - scan.started_at).total_seconds():,.1f} s"


SCANS: TableLayout[ScanView] = TableLayout(
    columns=[
        Column("SCAN", right=True, value="id"),
        Column("STATE", kind=ColumnKind.STATUS, value=_shown_state),
        Column("STARTED", kind=ColumnKind.AGE, value="started_at"),
        Column("DURATION", right=True, value=_duration),
        Column("URLS", right=True, kind=ColumnKind.COUNT, value="url_count"),
        Column("CHANGES", value=lambda s: counts_by_kind(s.change_counts)),
        Column("SEQUENCE NUMBER", right=True, from_width=WIDE, value="published_seq"),
        Column("ERROR", value=lambda s: s.error_code or ", ".join(s.reasons)),
    ],
    none="No scan of this site is stored.",
    none_matches="No scan of this site matches.",
    record=ScanView,
)

app = typer.Typer(rich_markup_mode=None)


@app.command()
@with_list_options
def scans(
    site: SiteArgument,
    *,
    request: ListRequest,
) -> None:
    """List the scans of SITE, newest first.

    Compare two of them by their numbers: siteatlas compare SITE --from SCAN --to SCAN
    """
    run(print_list(prepare(), request, SCANS, list_scans, site=site))
