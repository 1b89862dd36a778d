"""`siteatlas scans`: the scans of a site, with the numbers that `siteatlas compare` takes."""

from __future__ import annotations

import typer

from siteatlas.cli.terminal.change_lines import counts_by_kind
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    FormatOption,
    LimitOption,
    ListJsonOption,
    SiteArgument,
)
from siteatlas.cli.terminal.output import WIDE, Column, ColumnKind, ListFormat
from siteatlas.cli.terminal.paged_list import ListRequest, TableLayout, write_list
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.pages import DEFAULT_LIMIT, Page
from siteatlas.insights.scans import ScanView, list_scans
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session


def _shown_state(scan: ScanView) -> str:
    """The state of a scan in `siteatlas scans`: partial, if a published scan lost something."""
    return "partial" if scan.partial and scan.published_seq is not None else scan.state


def _duration(scan: ScanView) -> str | None:
    """How long a scan took; None while it runs."""
    if scan.finished_at is None:
        return None
    return f"{(scan.finished_at - scan.started_at).total_seconds():,.1f} s"


SHAPE: TableLayout[ScanView] = TableLayout(
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
    """Print the scans of a site for `siteatlas scans`."""
    async with opened(settings):
        async with get_session() as session, session.begin():
            domain = await find_domain_view(session, site)

        async def fetch(limit: int, cursor: str | None) -> Page[ScanView]:
            """Read one page of scans for `siteatlas scans`."""
            async with get_session() as session, session.begin():
                return await list_scans(session, domain.id, limit=limit, cursor=cursor)

        await write_list(request, fetch, SHAPE)
