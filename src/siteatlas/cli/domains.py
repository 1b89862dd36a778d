"""`siteatlas domains`: the sites that are known and watched."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from siteatlas.cli.border import run
from siteatlas.cli.listing import ListRequest, Shape, write_list
from siteatlas.cli.opening import opened
from siteatlas.cli.options import (
    AllOption,
    CursorOption,
    FormatOption,
    JsonOption,
    LimitOption,
    SiteArgument,
)
from siteatlas.cli.output import (
    WIDE,
    Column,
    Kind,
    ListFormat,
    is_terminal,
    say,
    write_details,
    write_json,
)
from siteatlas.cli.preparation import prepare
from siteatlas.errors import DomainNotFound, InputError
from siteatlas.insights.domains import (
    DomainView,
    domain_view,
    find_domain_view,
    list_domains,
)
from siteatlas.insights.pages import DEFAULT_LIMIT, Page
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.steering import remove_site
from siteatlas.queue.submission import watch_site
from siteatlas.settings import LONGEST_INTERVAL_HOURS, SHORTEST_INTERVAL_HOURS, Settings
from siteatlas.storage.domains import (
    change_domain,
    find_domain,
)
from siteatlas.storage.models import LOCAL_USER_ID
from siteatlas.storage.session import get_session

SHAPE: Shape[DomainView] = Shape(
    columns=[
        Column("DOMAIN"),
        Column("WATCHED", from_width=WIDE),
        Column("URLS", right=True, kind=Kind.COUNT),
        Column("SITEMAPS", right=True, kind=Kind.COUNT, from_width=WIDE),
        Column("STATUS", kind=Kind.STATUS),
        Column("ERROR"),
        Column("LAST SCAN", kind=Kind.AGE),
        Column("NEXT SCAN", kind=Kind.AGE),
    ],
    row=lambda d: (
        d.domain,
        "paused" if d.watched and d.paused else d.watched,
        d.url_count,
        d.sitemap_count,
        d.last_scan_status,
        d.last_error_code,
        d.last_scan_at,
        "paused" if d.watched and d.paused else d.next_scan_at,
    ),
    none="No site is known yet. Add one: siteatlas domains add example.com",
    none_matches="No site matches.",
    record=DomainView,
)

app = typer.Typer(
    help="The sites that are known and watched.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def add(
    site: SiteArgument,
    interval_hours: Annotated[
        float | None,
        typer.Option(
            min=SHORTEST_INTERVAL_HOURS,
            max=LONGEST_INTERVAL_HOURS,
            help="Hours between two scans; 0.016 is about one minute.",
        ),
    ] = None,
    max_urls: Annotated[
        int | None, typer.Option(min=1, max=50_000_000, help="Most URLs that a scan stores.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch SITE: scan it now and then again and again."""
    settings = prepare()
    domain = run(_add(settings, site, interval_hours, max_urls))
    _write(domain, as_json=as_json)
    which = "A first scan" if domain.last_scan_at is None else "A scan"
    say(f"{which} is queued. Without a running service: siteatlas scheduler run-once")


@app.command("list")
def list_(
    *,
    watched: Annotated[
        bool | None, typer.Option("--watched/--unwatched", help="Only these.")
    ] = None,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: FormatOption = ListFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List the sites."""
    settings = prepare()
    request = ListRequest.of(
        format, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    run(_list(settings, request, watched))


@app.command()
def show(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Show what is known of SITE."""
    _write(run(_find(prepare(), site)), as_json=as_json)


@app.command()
def pause(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Stop scanning SITE until it is resumed."""
    _write(run(_set_paused(prepare(), site, paused=True)), as_json=as_json)


@app.command()
def resume(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Scan SITE again as before."""
    _write(run(_set_paused(prepare(), site, paused=False)), as_json=as_json)


@app.command()
def remove(
    site: SiteArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget SITE and all that is stored of it."""
    settings = prepare()
    if not yes and not is_terminal(sys.stdin):
        raise InputError("Removing a site also removes its history. Add --yes to do it.")
    if not yes:
        typer.confirm(f"Remove {site} with its sitemaps, URLs and history?", abort=True, err=True)
    say(f"Removed {run(_remove(settings, site))}.")


def _write(domain: DomainView, *, as_json: bool) -> None:
    if as_json:
        write_json(domain)
    else:
        fields = DomainView.__dataclass_fields__
        write_details((name, getattr(domain, name)) for name in fields)


async def _add(
    settings: Settings, site: str, interval_hours: float | None, max_urls: int | None
) -> DomainView:
    address = parse_site(site)
    EgressPolicy.from_text(settings.egress_allow).check(address)
    async with opened(settings), get_session() as session, session.begin():
        domain = await watch_site(
            session,
            address,
            created_by=LOCAL_USER_ID,
            scan_interval_hours=interval_hours,
            default_interval_hours=settings.scan_interval_hours,
            max_pages=max_urls,
            max_attempts=settings.max_attempts,
        )
        return domain_view(domain)


async def _list(settings: Settings, request: ListRequest, watched: bool | None) -> None:
    async def fetch(limit: int, cursor: str | None) -> Page[DomainView]:
        async with get_session() as session, session.begin():
            return await list_domains(session, watched=watched, limit=limit, cursor=cursor)

    async with opened(settings):
        await write_list(request, fetch, SHAPE.filtered_by(watched))


async def _find(settings: Settings, site: str) -> DomainView:
    async with opened(settings), get_session() as session, session.begin():
        return await find_domain_view(session, site)


async def _set_paused(settings: Settings, site: str, *, paused: bool) -> DomainView:
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain(session, parse_site(site).domain, lock=True)
        if domain is None:
            raise DomainNotFound
        await change_domain(session, domain, paused=paused)
        return domain_view(domain)


async def _remove(settings: Settings, site: str) -> str:
    name = parse_site(site).domain
    async with opened(settings), get_session() as session, session.begin():
        await remove_site(session, name)
    return name
