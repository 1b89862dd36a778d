"""`siteatlas urls`: the stored URLs of a site, or of all."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from siteatlas.cli.commands.url_history import print_history
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.feed_numbers import require_reached
from siteatlas.cli.terminal.given_options import given_options
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    LimitOption,
    ListJsonOption,
    OptionalSiteArgument,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    WIDEST,
    Column,
    ColumnKind,
    ListFormat,
    print_message,
    url_lines,
    write_bytes,
)
from siteatlas.cli.terminal.paged_list import (
    FetchPage,
    ListRequest,
    TableLayout,
    read_pages,
    write_list,
)
from siteatlas.cli.terminal.tag_options import TagFilterOption, refuse_site_with_tag
from siteatlas.cli.terminal.url_options import (
    AtOption,
    ContainsOption,
    ExactUrlOption,
    FirstSeenFromOption,
    FirstSeenToOption,
    HasOption,
    LastmodFromOption,
    LastmodToOption,
    PrefixOption,
    SitemapOption,
    StateOption,
    parse_extras,
    require_possible,
)
from siteatlas.errors import InputError
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.pages import DEFAULT_LIMIT, Page
from siteatlas.insights.past_urls import PointInTime
from siteatlas.insights.url_filters import ListingState, UrlFilter, require_sitemap
from siteatlas.insights.urls import UrlView, list_domain_urls, search_urls
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session


class UrlFormat(StrEnum):
    """The forms of a list of URLs."""

    TABLE = "table"
    URLS = "urls"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"


HistoryOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Print the history of this URL of SITE instead."),
]
HISTORY_OPTIONS = {"history", "as_json"}
SHAPE: TableLayout[UrlView] = TableLayout(
    columns=[
        Column("URL", kind=ColumnKind.URL),
        Column("LASTMOD", kind=ColumnKind.DATE),
        Column("FIRST SEEN", kind=ColumnKind.AGE),
        Column("CHANGEFREQ", from_width=WIDEST),
        Column("PRIORITY", right=True, from_width=WIDEST),
        Column("SITEMAP", kind=ColumnKind.URL, from_width=WIDE),
    ],
    row=lambda u: (u.url, u.lastmod, u.first_seen_at, u.changefreq, u.priority, u.sitemap),
    none="The sitemaps list no URL.",
    none_matches="No URL matches.",
    record=UrlView,
)

app = typer.Typer(rich_markup_mode=None)


@app.command()
def urls(
    context: typer.Context,
    site: OptionalSiteArgument = None,
    *,
    contains: ContainsOption = None,
    prefix: PrefixOption = None,
    url: ExactUrlOption = None,
    sitemap: SitemapOption = None,
    lastmod_from: LastmodFromOption = None,
    lastmod_to: LastmodToOption = None,
    first_seen_from: FirstSeenFromOption = None,
    first_seen_to: FirstSeenToOption = None,
    has: HasOption = None,
    state: StateOption = ListingState.LISTED,
    tag: TagFilterOption = None,
    at: AtOption = None,
    history: HistoryOption = None,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: Annotated[UrlFormat, typer.Option(help="Output format.")] = UrlFormat.TABLE,
    as_json: ListJsonOption = False,
) -> None:
    """List the stored URLs of SITE, or of all sites.

    Example: siteatlas urls example.com --prefix https://example.com/blog/ --lastmod-from 7d
    """
    if history is not None:
        _require_plain_history(context, format)
        _show_history(site, history, as_json=as_json or format is UrlFormat.JSON)
        return
    wanted = UrlFilter(
        contains=contains,
        state=state,
        prefix=prefix,
        url=url,
        sitemap=sitemap,
        lastmod_from=lastmod_from,
        lastmod_to=lastmod_to,
        first_seen_from=first_seen_from,
        first_seen_to=first_seen_to,
        has=parse_extras(has),
    )
    require_possible(wanted)
    bare = format is UrlFormat.URLS and not as_json
    form = ListFormat.TABLE if bare else ListFormat(format.value)
    request = ListRequest.of(
        form, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    run(_list(prepare(), site, request, wanted, at, tag=tag, bare=bare))


def _require_plain_history(context: typer.Context, format: UrlFormat) -> None:
    """Refuse options that do not apply to `--history`, which prints text or JSON."""
    given = given_options(context)
    if format in (UrlFormat.TABLE, UrlFormat.JSON):
        given.pop("format", None)
    if refused := [given[name] for name in given if name not in HISTORY_OPTIONS]:
        raise InputError(f"These do not apply to --history: {', '.join(refused)}.")


def _show_history(site: str | None, url: str, *, as_json: bool) -> None:
    """Print the history of a URL for `siteatlas urls`; InputError without a site."""
    if site is None:
        raise InputError("--history needs a site.")
    run(print_history(prepare(), site, url, as_json=as_json))


async def _list(
    settings: Settings,
    site: str | None,
    request: ListRequest,
    wanted: UrlFilter,
    at: PointInTime | None,
    *,
    tag: str | None,
    bare: bool,
) -> None:
    """Print stored URLs for `siteatlas urls`."""
    refuse_site_with_tag(site, tag)
    if site is None and at is not None:
        raise InputError("--at needs a site.")
    async with opened(settings):
        domain_id = None
        async with get_session() as session, session.begin():
            if site is not None:
                domain_id = (await find_domain_view(session, site)).id
            await require_reached(session, at)
            await require_sitemap(session, wanted, domain_id)

        async def fetch(limit: int, cursor: str | None) -> Page[UrlView]:
            """Read one page of stored URLs for `siteatlas urls`."""
            async with get_session() as session, session.begin():
                if domain_id is None:
                    return await search_urls(session, wanted, tag=tag, limit=limit, cursor=cursor)
                return await list_domain_urls(
                    session, domain_id, wanted, at=at, limit=limit, cursor=cursor
                )

        shape = SHAPE.filtered_by(None if wanted == UrlFilter() else wanted, tag)
        await (_write_plain_urls(request, fetch) if bare else write_list(request, fetch, shape))


async def _write_plain_urls(request: ListRequest, fetch: FetchPage[UrlView]) -> None:
    """The output of `siteatlas urls --format urls`: stored URLs, one per line."""
    cursor = None
    async for page in read_pages(fetch, request.limit, request.cursor):
        write_bytes(url_lines([item.url for item in page.items]))
        cursor = page.next_cursor
    if cursor is not None:
        print_message(f"More items: use --all, or continue with --cursor {cursor}")
