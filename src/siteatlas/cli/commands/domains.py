"""`siteatlas domains`: manage sites."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.cli.commands.adding_domains import WatchOptions, add_file, add_sites
from siteatlas.cli.scanning.messages import shown_site
from siteatlas.cli.terminal.change_lines import counts_by_kind
from siteatlas.cli.terminal.choices import counted
from siteatlas.cli.terminal.confirmation import YesOption, require_confirmation
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import report, run
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    FormatOption,
    JsonOption,
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
    write_details,
    write_json,
)
from siteatlas.cli.terminal.paged_list import ListRequest, TableLayout, write_list
from siteatlas.cli.terminal.site_list import MAX_LINE_CHARS, STDIN, site_in_line
from siteatlas.cli.terminal.tables import relative_time
from siteatlas.cli.terminal.tag_options import TagFilterOption, TagsOption
from siteatlas.errors import AddressError, DomainNotFound, InputError
from siteatlas.insights.domains import (
    DomainView,
    domain_view,
    find_creator,
    find_domain_view,
    list_domains,
)
from siteatlas.insights.pages import DEFAULT_LIMIT, Page
from siteatlas.insights.scans import changes_of_last_scan
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.held_removals import release_removals
from siteatlas.queue.new_job import SubmittedJob
from siteatlas.queue.operator_actions import remove_domain_and_jobs
from siteatlas.settings import MAX_INTERVAL_HOURS, MAX_PAGES, MIN_INTERVAL_HOURS, Settings
from siteatlas.storage.models import LOCAL_USER_ID
from siteatlas.storage.session import get_session
from siteatlas.storage.statements.domains import (
    change_domain,
    find_domain,
)
from siteatlas.tags import parse_tags

SHAPE: TableLayout[DomainView] = TableLayout(
    columns=[
        Column("DOMAIN"),
        Column("WATCHED", from_width=WIDE),
        Column("URLS", right=True, kind=ColumnKind.COUNT),
        Column("SITEMAPS", right=True, kind=ColumnKind.COUNT, from_width=WIDE),
        Column("STATUS", kind=ColumnKind.STATUS),
        Column("ERROR"),
        Column("LAST SCAN", kind=ColumnKind.AGE),
        Column("NEXT SCAN", kind=ColumnKind.AGE),
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
    none="There are no sites yet. Add one: siteatlas domains add example.com",
    none_matches="No site matches.",
    record=DomainView,
)

app = typer.Typer(help="Manage sites.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def add(
    sites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SITE",
            help="A host such as example.com, or - to read a list of sites from stdin, one per "
            "line. Repeatable.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Add the sites in FILE: one per line, or CSV with the columns url, interval "
            "(hours) and tags.",
        ),
    ] = None,
    interval_hours: Annotated[
        float | None,
        typer.Option(
            min=MIN_INTERVAL_HOURS,
            max=MAX_INTERVAL_HOURS,
            help="Hours between scans; 0.016 is about one minute.",
        ),
    ] = None,
    max_urls: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_PAGES, help="Maximum number of URLs stored per scan."),
    ] = None,
    tag: TagsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch sites: scan each one now, then at regular intervals.

    Exit with 1 if a site cannot be added; the others are still added.
    """
    settings = prepare()
    watching = WatchOptions(interval_hours, max_urls, parse_tags(tag or []))
    if file is not None:
        _refuse_with_file(sites, max_urls)
        added = run(add_file(settings, file, watching, as_json=as_json))
        raise typer.Exit(0 if added else 1)
    typed = list(dict.fromkeys(_typed(sites or [])))
    addresses = _usable(typed, EgressPolicy.from_text(settings.egress_allow))
    if addresses:
        run(add_sites(settings, addresses, watching, as_json=as_json))
    raise typer.Exit(0 if len(addresses) == len(typed) else 1)


def _refuse_with_file(sites: list[str] | None, max_urls: int | None) -> None:
    """Refuse arguments of `siteatlas domains add` that do not apply to a file."""
    if sites or max_urls is not None:
        raise InputError("--file cannot be combined with SITE or --max-urls.")


def _typed(sites: list[str]) -> Iterator[str]:
    """The sites given to `siteatlas domains add`; blank lines and comments on stdin are skipped."""
    for site in sites:
        if site != STDIN:
            yield site
            continue
        while line := sys.stdin.buffer.readline(MAX_LINE_CHARS):
            if named := site_in_line(line):
                yield named


def _usable(typed: list[str], policy: EgressPolicy) -> list[WebAddress]:
    """The addresses that can be scanned; others are reported, or raised if only one was given."""
    if not typed:
        raise InputError("No site given. Name hosts such as example.com, or pass a list on stdin.")
    usable: list[WebAddress] = []
    for text in typed:
        try:
            address = parse_site(text)
            policy.check(address)
        except AddressError as error:
            if len(typed) == 1:
                raise
            report(error, about=shown_site(text))
        else:
            usable.append(address)
    return usable


@app.command("list")
def list_(
    *,
    watched: Annotated[
        bool | None,
        typer.Option("--watched/--unwatched", help="Only watched sites, or only unwatched ones."),
    ] = None,
    tag: TagFilterOption = None,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: FormatOption = ListFormat.TABLE,
    as_json: ListJsonOption = False,
) -> None:
    """List the stored sites, sorted by name."""
    settings = prepare()
    request = ListRequest.of(
        format, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    run(_list(settings, request, watched, tag))


@app.command()
def show(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Show what is stored about SITE, what its last scan changed and which removals are held."""
    domain, changed, creator = run(_find(prepare(), site))
    _write(domain, changed, creator, as_json=as_json)


@app.command()
def tag(
    site: SiteArgument,
    tags: Annotated[
        list[str] | None,
        typer.Argument(metavar="TAG", help="All tags of the site; none removes them."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set the tags of SITE."""
    domain = run(_change(prepare(), site, tags=parse_tags(tags or [])))
    shown = ", ".join(domain.tags) or "none"
    _write_changed(domain, f"Tags of {domain.domain}: {shown}.", as_json=as_json)


@app.command()
def pause(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Pause scheduled scans of SITE."""
    domain = run(_change(prepare(), site, paused=True))
    _write_changed(domain, f"Paused {domain.domain}.", as_json=as_json)


@app.command()
def resume(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Resume scheduled scans of SITE."""
    domain = run(_change(prepare(), site, paused=False))
    due = domain.next_scan_at
    when = f"; next scan: {relative_time(due, datetime.now(UTC))}" if due else ""
    _write_changed(domain, f"Resumed {domain.domain}{when}.", as_json=as_json)


@app.command()
def release(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Queue a scan of SITE that removes its missing URLs."""
    domain, job = run(_release(prepare(), site))
    queued = "was already queued" if job.deduplicated else "is queued"
    line = f"Released the removals of {domain.domain}; the scan {queued} as job {job.id}."
    _write_changed(domain, line, as_json=as_json)


@app.command()
def remove(
    site: SiteArgument,
    yes: YesOption = False,
) -> None:
    """Remove SITE and everything stored about it."""
    settings = prepare()
    require_confirmation(
        f"Remove {site} with its sitemaps, URLs and history?",
        "Removing a site also removes its history.",
        yes=yes,
    )
    print_message(f"Removed {run(_remove(settings, site))}.")


def _write(
    domain: DomainView, changed: dict[str, int] | None, creator: str | None, *, as_json: bool
) -> None:
    """Print a stored site for `siteatlas domains show`, as text or JSON."""
    shown = asdict(domain) | {"last_scan_changes": changed}
    if as_json:
        write_json(shown)
    else:
        texts = {
            "last_scan_changes": counts_by_kind(changed),
            "created_by": creator or domain.created_by,
        }
        write_details((shown | texts).items())
    if domain.removals_held_since is not None and not as_json:
        print_message(
            f"{counted(domain.missing_count, 'URL')} missing from the sitemaps, but not proved to "
            "be removed."
        )


def _write_changed(domain: DomainView, line: str, *, as_json: bool) -> None:
    """Report a site that `siteatlas domains` paused or resumed: a line, or the site as JSON."""
    if as_json:
        write_json(domain)
    else:
        print_message(line)


async def _list(
    settings: Settings, request: ListRequest, watched: bool | None, tag: str | None
) -> None:
    """Print the stored sites for `siteatlas domains list`."""

    async def fetch(limit: int, cursor: str | None) -> Page[DomainView]:
        """Read one page of stored sites for `siteatlas domains list`."""
        async with get_session() as session, session.begin():
            return await list_domains(session, watched=watched, tag=tag, limit=limit, cursor=cursor)

    async with opened(settings):
        await write_list(request, fetch, SHAPE.filtered_by(watched, tag))


async def _find(
    settings: Settings, site: str
) -> tuple[DomainView, dict[str, int] | None, str | None]:
    """Read a site, what its last scan changed and who created it, for `siteatlas domains show`."""
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        changed = await changes_of_last_scan(session, domain.id)
        return domain, changed, await find_creator(session, domain)


async def _change(
    settings: Settings, site: str, *, paused: bool | None = None, tags: list[str] | None = None
) -> DomainView:
    """Pause or resume the scheduled scans of a site or set its tags, for `siteatlas domains`."""
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain(session, parse_site(site).domain, lock=True)
        if domain is None:
            raise DomainNotFound
        await change_domain(session, domain, paused=paused, tags=tags)
        return domain_view(domain)


async def _release(settings: Settings, site: str) -> tuple[DomainView, SubmittedJob]:
    """Release the held removals of a site, for `siteatlas domains release`."""
    async with opened(settings), get_session() as session, session.begin():
        domain, job = await release_removals(
            session,
            parse_site(site).domain,
            created_by=LOCAL_USER_ID,
            max_attempts=settings.max_attempts,
        )
        return domain_view(domain), job


async def _remove(settings: Settings, site: str) -> str:
    """Remove a site with its jobs for `siteatlas domains remove`; returns its domain."""
    name = parse_site(site).domain
    async with opened(settings), get_session() as session, session.begin():
        await remove_domain_and_jobs(session, name)
    return name
