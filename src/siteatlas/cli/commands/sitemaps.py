"""`siteatlas sitemaps`: the stored documents of a site."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from siteatlas.cli.terminal.choices import alternatives, complete_choice
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
from siteatlas.insights.sitemaps import SitemapView, list_sitemaps
from siteatlas.queue.statuses import STATUS_ALIASES, parse_status_or_type
from siteatlas.scanner.events import SitemapType
from siteatlas.settings import Settings
from siteatlas.storage.models import SitemapStatus
from siteatlas.storage.session import get_session

SHAPE: TableLayout[SitemapView] = TableLayout(
    columns=[
        Column("URL", kind=ColumnKind.URL),
        Column("TYPE"),
        Column("FOUND BY", from_width=WIDE),
        Column("STATUS", kind=ColumnKind.STATUS),
        Column("URLS", right=True, kind=ColumnKind.COUNT),
        Column("LAST READ", kind=ColumnKind.AGE),
        Column("ERROR"),
    ],
    row=lambda s: (
        s.url,
        s.type,
        s.discovery_method,
        s.status,
        s.url_count,
        s.last_read_at,
        s.error_code,
    ),
    none="No sitemap of this site is stored.",
    none_matches="No sitemap of this site matches.",
    record=SitemapView,
)


@dataclass(frozen=True, slots=True)
class SitemapFilter:
    """Which sitemaps to list, in the words that are stored."""

    type: str | None = None
    status: str | None = None

    @classmethod
    def of(cls, type: str | None, status: str | None) -> SitemapFilter:
        """The filter that was typed; raises InputError for a word that is not known."""
        # As plain text: a cursor must fit the same list wherever it was asked for.
        found = cls()
        if type is not None:
            found = replace(found, type=parse_status_or_type(type, SitemapType, "type").value)
        if status is not None:
            word = parse_status_or_type(status, SitemapStatus, "status", STATUS_ALIASES)
            found = replace(found, status=word.value)
        return found


app = typer.Typer(rich_markup_mode=None)


@app.command()
def sitemaps(
    site: SiteArgument,
    *,
    type: Annotated[
        str | None,
        typer.Option(
            metavar=alternatives(SitemapType),
            autocompletion=complete_choice(SitemapType),
            help="Only sitemaps of this type.",
        ),
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar=alternatives(SitemapStatus),
            autocompletion=complete_choice(SitemapStatus),
            help="Only sitemaps with this status.",
        ),
    ] = None,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: FormatOption = ListFormat.TABLE,
    as_json: ListJsonOption = False,
) -> None:
    """List the stored sitemaps of SITE."""
    settings = prepare()
    request = ListRequest.of(
        format, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    wanted = SitemapFilter.of(type, status)
    run(_list(settings, site, request, wanted))


async def _list(settings: Settings, site: str, request: ListRequest, wanted: SitemapFilter) -> None:
    """Print the stored sitemaps of a site for `siteatlas sitemaps`."""
    async with opened(settings):
        async with get_session() as session, session.begin():
            domain = await find_domain_view(session, site)

        async def fetch(limit: int, cursor: str | None) -> Page[SitemapView]:
            """Read one page of stored sitemaps for `siteatlas sitemaps`."""
            async with get_session() as session, session.begin():
                return await list_sitemaps(
                    session,
                    domain.id,
                    type=wanted.type,
                    status=wanted.status,
                    limit=limit,
                    cursor=cursor,
                )

        await write_list(request, fetch, SHAPE.filtered_by(wanted.type, wanted.status))
