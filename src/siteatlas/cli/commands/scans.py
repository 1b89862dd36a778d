"""`siteatlas scans` and `siteatlas problems`: the scans of a site, and what is wrong with it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.paging import DEFAULT_LIMIT, Page
from siteatlas.catalog.problems import ProblemFilter, ProblemState, ProblemView, list_problems
from siteatlas.catalog.scans import ScanView, list_scans
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.lines import ProblemLines, ShownProblem, counts_by_kind
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    FormatOption,
    LimitOption,
    ListJsonOption,
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
    read_pages,
    write_list,
)
from siteatlas.cli.terminal.tables import terminal_width
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

PROBLEMS: TableLayout[ProblemView] = TableLayout(
    columns=(),
    row=lambda _problem: (),
    none="No problem of this site is stored.",
    none_matches="No problem of this site matches.",
    record=ProblemView,
)

problems_app = typer.Typer(rich_markup_mode=None)


@problems_app.command()
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
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: FormatOption = ListFormat.TABLE,
    as_json: ListJsonOption = False,
) -> None:
    """List the stored problems in the sitemaps of SITE, grouped by code, with samples.

    Example: siteatlas problems example.com --code lastmod_invalid
    """
    settings = prepare()
    request = ListRequest.of(
        format, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    run(_list_problems(settings, site, request, ProblemFilter(code, sitemap, state)))


async def _list_problems(
    settings: Settings, site: str, request: ListRequest, wanted: ProblemFilter
) -> None:
    async with opened(settings):
        async with get_session() as session, session.begin():
            domain = await find_domain_view(session, site)

        async def fetch(limit: int, cursor: str | None) -> Page[ProblemView]:
            """Read one page of stored problems for `siteatlas problems`."""
            async with get_session() as session, session.begin():
                return await list_problems(session, domain.id, wanted, limit=limit, cursor=cursor)

        changed_state = None if wanted.state is ProblemState.CURRENT else wanted.state
        shape = PROBLEMS.filtered_by(wanted.code, wanted.sitemap, changed_state)
        write = _write_groups if request.format is ListFormat.TABLE else write_list
        await write(request, fetch, shape)


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
        Column("SCAN", right=True),
        Column("STATE", kind=ColumnKind.STATUS),
        Column("STARTED", kind=ColumnKind.AGE),
        Column("DURATION", right=True),
        Column("URLS", right=True, kind=ColumnKind.COUNT),
        Column("CHANGES"),
        Column("FEED NUMBER", right=True, from_width=WIDE),
        Column("ERROR"),
    ],
    row=lambda s: (
        s.id,
        _shown_state(s),
        s.started_at,
        _duration(s),
        s.url_count,
        counts_by_kind(s.change_counts),
        s.published_seq,
        s.error_code or ", ".join(s.reasons),
    ),
    none="No scan of this site is stored.",
    none_matches="No scan of this site matches.",
    record=ScanView,
)

app = typer.Typer(rich_markup_mode=None)


@app.command()
def scans(
    site: SiteArgument,
    *,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: FormatOption = ListFormat.TABLE,
    as_json: ListJsonOption = False,
) -> None:
    """List the scans of SITE, newest first.

    Compare two of them by their numbers: siteatlas compare SITE --from SCAN --to SCAN
    """
    request = ListRequest.of(
        format, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    run(_list(prepare(), site, request))


async def _list(settings: Settings, site: str, request: ListRequest) -> None:
    async with opened(settings):
        async with get_session() as session, session.begin():
            domain = await find_domain_view(session, site)

        async def fetch(limit: int, cursor: str | None) -> Page[ScanView]:
            """Read one page of scans for `siteatlas scans`."""
            async with get_session() as session, session.begin():
                return await list_scans(session, domain.id, limit=limit, cursor=cursor)

        await write_list(request, fetch, SCANS)
