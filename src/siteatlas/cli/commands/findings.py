"""`siteatlas findings`: what is wrong with a site, and what of it is accepted."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Literal

import typer

from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.findings import (
    FindingFilter,
    FindingState,
    FindingView,
    accept_findings,
    list_findings,
)
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import SiteArgument
from siteatlas.cli.terminal.output import ListFormat, counted, print_message, write_line
from siteatlas.cli.terminal.paged_list import (
    FetchPage,
    ListRequest,
    TableLayout,
    print_list,
    read_pages,
    with_list_options,
)
from siteatlas.cli.terminal.tables import terminal_width
from siteatlas.errors import InputError
from siteatlas.findings.rules import Severity
from siteatlas.net.address import parse_site
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID
from siteatlas.storage.session import get_session
from siteatlas.text import truncated

FINDINGS: TableLayout[FindingView] = TableLayout(
    columns=(),
    none="Nothing is wrong with this site, as far as its last scan shows.",
    none_matches="No finding of this site matches.",
    record=FindingView,
)

app = typer.Typer(rich_markup_mode=None)


@app.command()
@with_list_options
def findings(
    site: SiteArgument,
    *,
    code: Annotated[
        str | None, typer.Option(help="Only this rule, by its code or by that of a problem.")
    ] = None,
    sitemap: Annotated[
        str | None, typer.Option(metavar="URL", help="Only findings in this sitemap.")
    ] = None,
    severity: Annotated[
        Literal["note", "warning", "error"],
        typer.Option(help="Only findings that are at least so severe."),
    ] = "note",
    state: Annotated[
        FindingState,
        typer.Option(help="Which findings; `new` ones came with the last scan."),
    ] = FindingState.CURRENT,
    accept: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Accept the findings of --code, for this reason."),
    ] = None,
    reopen: Annotated[
        bool, typer.Option("--reopen", help="No longer accept the findings of --code.")
    ] = False,
    request: ListRequest,
) -> None:
    """List what is wrong with SITE, the worst first, with reasons and samples.

    Example: siteatlas findings example.com --severity error
    """
    if accept is not None or reopen:
        run(_accept(prepare(), site, code, None if reopen else accept, sitemap))
        return
    wanted = FindingFilter(code, sitemap, Severity.of(severity), state)
    given = None if severity == "note" else severity
    other = None if state is FindingState.CURRENT else state
    shape = FINDINGS.filtered_by(code, sitemap, given, other)
    write = _write_groups if request.format is ListFormat.TABLE else None
    read = partial(list_findings, wanted=wanted)
    run(print_list(prepare(), request, shape, read, site=site, write=write))


async def _accept(
    settings: Settings, site: str, code: str | None, reason: str | None, sitemap: str | None
) -> None:
    if code is None:
        raise InputError("Say which findings: --code CODE.")
    if reason is not None and not reason.strip():
        raise InputError("Say why they are accepted: --accept REASON.")
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, parse_site(site).domain)
        count = await accept_findings(
            session, domain.id, code, user_id=LOCAL_USER_ID, reason=reason, sitemap=sitemap
        )
    verb = "is" if count == 1 else "are"
    done = "no longer accepted" if reason is None else "accepted"
    print_message(f"{counted(count, 'finding')} {verb} {done}.")


async def _write_groups(
    request: ListRequest, fetch: FetchPage[FindingView], shape: TableLayout[FindingView]
) -> None:
    """Findings under their rules; a table has no room for samples."""
    width, code, cursor, printed = terminal_width(sys.stdout), None, None, 0
    async for page in read_pages(fetch, request.limit, request.cursor):
        cursor = page.next_cursor
        printed += len(page.items)
        for one in page.items:
            if one.code != code:
                code = one.code
                write_line(f"{one.severity} {code}: {one.title}")
            for line in _lines(one):
                write_line(line if width is None else truncated(line, width))
    if not printed:
        print_message(shape.none)
    if cursor is not None:
        print_message(f"More items: use --all, or continue with --cursor {cursor}")


def _lines(one: FindingView) -> list[str]:
    marks = [] if one.state == "open" else [one.state]
    marks += [one.accepted_reason] if one.accepted_reason else []
    head = f"  {one.count:,} in {one.sitemap or 'the site as a whole'}, since "
    head += f"{one.first_seen_at:%Y-%m-%d}"
    details = [f"    {one.detail}"] if one.detail else []
    samples = (filter(None, (sample.url, sample.value)) for sample in one.samples)
    return [", ".join([head, *marks]), *details, *(f"    {' '.join(text)}" for text in samples)]
