"""`siteatlas problems`: the stored problems of a site's documents."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.drawing import terminal_width
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    FormatOption,
    LimitOption,
    ListJsonOption,
    SiteArgument,
)
from siteatlas.cli.terminal.output import ListFormat, print_message, write_line
from siteatlas.cli.terminal.paged_list import (
    FetchPage,
    ListRequest,
    TableLayout,
    read_pages,
    write_list,
)
from siteatlas.cli.terminal.problem_lines import ProblemLines, ShownProblem
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.pages import DEFAULT_LIMIT, Page
from siteatlas.insights.problems import ProblemFilter, ProblemState, ProblemView, list_problems
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

SHAPE: TableLayout[ProblemView] = TableLayout(
    columns=(),
    row=lambda _problem: (),
    none="No problem of this site is stored.",
    none_matches="No problem of this site matches.",
    record=ProblemView,
)

app = typer.Typer(rich_markup_mode=None)


@app.command()
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
    run(_list(settings, site, request, ProblemFilter(code, sitemap, state)))


async def _list(settings: Settings, site: str, request: ListRequest, wanted: ProblemFilter) -> None:
    """Print the stored problems of a site for `siteatlas problems`."""
    async with opened(settings):
        async with get_session() as session, session.begin():
            domain = await find_domain_view(session, site)

        async def fetch(limit: int, cursor: str | None) -> Page[ProblemView]:
            """Read one page of stored problems for `siteatlas problems`."""
            async with get_session() as session, session.begin():
                return await list_problems(session, domain.id, wanted, limit=limit, cursor=cursor)

        changed_state = None if wanted.state is ProblemState.CURRENT else wanted.state
        shape = SHAPE.filtered_by(wanted.code, wanted.sitemap, changed_state)
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
    """A stored problem as `siteatlas problems` prints it, with the scans that found it."""
    first, last = item.first_scan_id, item.last_scan_id
    scans = f"scan {last}" if first == last else f"scans {first} to {last}"
    over = f", resolved {item.resolved_at:%Y-%m-%d %H:%M}Z" if item.resolved_at else ""
    return ShownProblem(item.code, item.sitemap, item.count, item.samples, scans + over)
