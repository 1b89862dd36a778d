"""`siteatlas urls`: the stored URLs of a site, or of all."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from operator import itemgetter
from shlex import quote
from typing import Annotated

import typer

from siteatlas.catalog.change_feed import ChangeView
from siteatlas.catalog.domains import DomainView, find_domain_view
from siteatlas.catalog.paging import DEFAULT_LIMIT, MAX_LIMIT, Page
from siteatlas.catalog.url_lists import (
    ListingState,
    PointInTime,
    UrlFilter,
    UrlHistoryView,
    UrlView,
    list_domain_urls,
    list_url_history,
    require_sitemap,
    search_urls,
)
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.filters import (
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
    require_reached,
)
from siteatlas.cli.terminal.lines import UNKNOWN_SITEMAP, listed_value
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    LimitOption,
    ListJsonOption,
    OptionalSiteArgument,
    TagFilterOption,
    refuse_site_with_tag,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    WIDEST,
    Column,
    ColumnKind,
    ListFormat,
    cell_text,
    print_message,
    url_lines,
    write_bytes,
    write_json,
    write_line,
)
from siteatlas.cli.terminal.paged_list import (
    FetchPage,
    ListRequest,
    TableLayout,
    read_pages,
    write_list,
)
from siteatlas.errors import InputError, NotFoundError
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session


async def print_history(settings: Settings, site: str, url: str, *, as_json: bool) -> None:
    """Print the history of a URL, newest first."""
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        page = await list_url_history(session, domain.id, url, limit=MAX_LIMIT)
    if not page.items and not page.entries and page.entries_cursor is None:
        raise NotFoundError(_not_stored(url, domain))
    if as_json:
        _write_json(page)
        return
    _write_history(page)
    if page.entries_cursor is not None:
        print_message(_how_to_continue(url, domain, page.entries_cursor))


def _not_stored(url: str, domain: DomainView) -> str:
    """What to say of a URL without a history; a path alone is a common mistake."""
    message = "This URL is not stored for this site."
    if "://" in url:
        return message
    return f"{message} Write the full URL, such as {domain.base_url}{url.lstrip('/')}"


def _how_to_continue(url: str, domain: DomainView, cursor: str) -> str:
    command = f"siteatlas urls {domain.domain} --url {quote(url)} --state all --cursor {cursor}"
    return f"Not all sitemaps were examined; others may list this URL too. Continue with: {command}"


def _write_json(page: UrlHistoryView) -> None:
    write_json(
        {
            "items": page.items,
            "next_cursor": page.next_cursor,
            "entries": page.entries,
            "entries_cursor": page.entries_cursor,
        }
    )


def _write_history(page: UrlHistoryView) -> None:
    for line in history_lines(page):
        write_line(line)
    if page.next_cursor is not None:
        print_message("There are older changes; the API shows them.")


def history_lines(page: UrlHistoryView) -> list[str]:
    """The changes and the first listings of a URL, newest first.

    Changes keep the order of the feed; one without a time has that of the change after it.
    """
    dated: list[tuple[datetime, str]] = []
    moment = datetime.max.replace(tzinfo=UTC)
    for change in page.items:
        moment = min(moment, change.not_after or moment)
        dated.append((moment, _change_line(change)))
    dated += [(entry.first_seen_at, _entry_line(entry)) for entry in page.entries]
    return [line for _, line in sorted(dated, key=itemgetter(0), reverse=True)]


def _change_line(change: ChangeView) -> str:
    when = cell_text(change.not_after) if change.not_after else "unknown"
    details = "; ".join(
        f"{name}: {listed_value(change.before, name)} -> {listed_value(change.after, name)}"
        for name in change.fields
    )
    line = f"{when}  {change.kind}  {_place(change)}  (sequence number {change.seq})"
    return f"{line}  {details}" if details else line


def _place(change: ChangeView) -> str:
    sitemap = change.sitemap or UNKNOWN_SITEMAP
    if change.kind != "moved":
        return sitemap
    return f"from {change.previous_sitemap or UNKNOWN_SITEMAP} to {sitemap}"


def _entry_line(entry: UrlView) -> str:
    removed = f", removed {cell_text(entry.removed_at)}" if entry.removed_at else ""
    return f"{cell_text(entry.first_seen_at)}  first seen  {entry.sitemap}{removed}"


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
URLS: TableLayout[UrlView] = TableLayout(
    columns=[
        Column("URL", kind=ColumnKind.URL, value="url"),
        Column("LASTMOD", kind=ColumnKind.DATE, value="lastmod"),
        Column("FIRST SEEN", kind=ColumnKind.AGE, value="first_seen_at"),
        Column("CHANGEFREQ", from_width=WIDEST, value="changefreq"),
        Column("PRIORITY", right=True, from_width=WIDEST, value="priority"),
        Column("SITEMAP", kind=ColumnKind.URL, from_width=WIDE, value="sitemap"),
    ],
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
    form = ListFormat.TABLE if bare else ListFormat("json" if as_json else format.value)
    request = ListRequest(form, None if everything else limit, cursor)
    run(_list(prepare(), site, request, wanted, at, tag=tag, bare=bare))


def _require_plain_history(context: typer.Context, format: UrlFormat) -> None:
    given = _given_options(context)
    if format in (UrlFormat.TABLE, UrlFormat.JSON):
        given.pop("format", None)
    if refused := [given[name] for name in given if name not in HISTORY_OPTIONS]:
        raise InputError(f"These do not apply to --history: {', '.join(refused)}.")


def _given_options(context: typer.Context) -> dict[str, str]:
    given = {}
    for option in context.command.params:
        source = context.get_parameter_source(option.name) if option.name else None
        # By name: typer does not export the type.
        if option.param_type_name == "option" and source and source.name == "COMMANDLINE":
            given[str(option.name)] = option.opts[0]
    return given


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

        shape = URLS.filtered_by(None if wanted == UrlFilter() else wanted, tag)
        await (_write_plain_urls(request, fetch) if bare else write_list(request, fetch, shape))


async def _write_plain_urls(request: ListRequest, fetch: FetchPage[UrlView]) -> None:
    """The output of `siteatlas urls --format urls`: stored URLs, one per line."""
    cursor = None
    async for page in read_pages(fetch, request.limit, request.cursor):
        write_bytes(url_lines([item.url for item in page.items]))
        cursor = page.next_cursor
    if cursor is not None:
        print_message(f"More items: use --all, or continue with --cursor {cursor}")
