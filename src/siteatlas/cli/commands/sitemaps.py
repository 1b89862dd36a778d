"""`siteatlas sitemaps`, `sections`, `robots` and `policy`: the documents of a site, what they list,
and who may fetch it.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.paging import MAX_LIMIT
from siteatlas.catalog.robots import (
    DecisionView,
    PolicyView,
    RobotsFileView,
    find_policy,
    judge,
    list_robots_files,
)
from siteatlas.catalog.sections import (
    DEFAULT_SECTIONS,
    MAX_SECTIONS,
    SectionsView,
    domain_sections,
)
from siteatlas.catalog.sitemaps import SitemapView, list_sitemaps
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import (
    JsonOption,
    ListJsonOption,
    SiteArgument,
    alternatives,
    complete_choice,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    cell_text,
    percent,
    print_message,
    print_warning,
    write_json,
    write_line,
    write_table,
)
from siteatlas.cli.terminal.paged_list import (
    ListRequest,
    TableLayout,
    print_list,
    with_list_options,
)
from siteatlas.errors import InputError
from siteatlas.findings.policies import path_of
from siteatlas.queue.fence import STATUS_ALIASES, parse_status_or_type
from siteatlas.scanner.discovery.robots import MAX_BYTES, robots_text
from siteatlas.scanner.events import SitemapType
from siteatlas.settings import Settings
from siteatlas.storage.models import RobotsFile, SitemapStatus
from siteatlas.storage.session import get_session

SITEMAPS: TableLayout[SitemapView] = TableLayout(
    columns=[
        Column("URL", kind=ColumnKind.URL, value="url"),
        Column("TYPE", value="type"),
        Column("FOUND BY", from_width=WIDE, value="discovery_method"),
        Column("STATUS", kind=ColumnKind.STATUS, value="status"),
        Column("URLS", right=True, kind=ColumnKind.COUNT, value="url_count"),
        Column("LAST READ", kind=ColumnKind.AGE, value="last_read_at"),
        Column("ERROR", value="error_code"),
    ],
    none="No sitemap of this site is stored.",
    none_matches="No sitemap of this site matches.",
    record=SitemapView,
)


app = typer.Typer(rich_markup_mode=None)


@app.command()
@with_list_options
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
    request: ListRequest,
) -> None:
    """List the stored sitemaps of SITE."""
    settings = prepare()
    # As plain text: a cursor must fit the same list wherever it was asked for.
    kind = type and parse_status_or_type(type, SitemapType, "type").value
    state = status and parse_status_or_type(status, SitemapStatus, "status", STATUS_ALIASES).value
    read = partial(list_sitemaps, type=kind, status=state)
    run(print_list(settings, request, SITEMAPS.filtered_by(kind, state), read, site=site))


COUNTS = [Column("URLS", right=True, kind=ColumnKind.COUNT), Column("SHARE", right=True)]

sections_app = typer.Typer(rich_markup_mode=None)


@sections_app.command()
def sections(
    site: SiteArgument,
    *,
    months: Annotated[
        bool, typer.Option("--months", help="Count by the month of lastmod instead.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_SECTIONS, help="Maximum number of sections.")
    ] = DEFAULT_SECTIONS,
    as_json: JsonOption = False,
) -> None:
    """Count the URLs of SITE by section, which is the first segment of the path.

    Example: siteatlas sections example.com --months
    """
    found = run(_read_sections(prepare(), site, limit))
    if as_json:
        write_json(found)
    elif not found.url_count:
        print_message("No URL of this site has been counted yet.")
    elif months:
        _write_months(found)
    else:
        _write_sections(found)


async def _read_sections(settings: Settings, site: str, limit: int) -> SectionsView:
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        return await domain_sections(session, domain.id, limit=limit)


def _write_sections(found: SectionsView) -> None:
    rows = [(one.section, one.url_count) for one in found.sections]
    _write_counts("SECTION", [*rows, ("(other)", found.other_url_count)], found)


def _write_months(found: SectionsView) -> None:
    rows = [(one.month, one.url_count) for one in found.months]
    rest = [("(other)", found.other_month_url_count), ("(none)", found.undated_url_count)]
    _write_counts("LASTMOD", [*rows, *rest], found)


def _write_counts(name: str, rows: list[tuple[str, int]], found: SectionsView) -> None:
    """Print counts with their shares; a remainder of zero is left out."""
    shown = [
        (label, count, percent(count / found.url_count))
        for label, count in rows
        if count or not label.startswith("(")
    ]
    write_table([Column(name, kind=ColumnKind.NAME), *COUNTS], shown)
    if not found.complete:
        print_message(f"Only the first {found.sitemap_count} sitemaps of the site were counted.")


HISTORY_LIMIT = 20

robots_app = typer.Typer(rich_markup_mode=None)


@robots_app.command()
def robots(
    site: SiteArgument,
    *,
    history: Annotated[
        bool,
        typer.Option("--history", help="Show what each version changed, newest first."),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_LIMIT, help="Maximum number of versions.")
    ] = HISTORY_LIMIT,
    as_json: ListJsonOption = False,
) -> None:
    """Print the robots.txt of SITE as last read, or its history.

    Example: siteatlas robots example.com --history
    """
    versions = run(_find_versions(prepare(), site, limit if history else 1))
    if as_json:
        write_json({"items": versions, "next_cursor": None})
    elif not versions:
        print_message("No robots.txt of this site is stored.")
    else:
        for version in versions:
            _write_version(version, history=history)


async def _find_versions(settings: Settings, site: str, limit: int) -> list[RobotsFileView]:
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        return (await list_robots_files(session, domain.id, limit=limit)).items


def _write_version(version: RobotsFileView, *, history: bool) -> None:
    status = f", HTTP {version.http_status}" if version.http_status else ""
    cut = ", truncated" if version.truncated else ""
    seen = f"{cell_text(version.first_seen_at)} to {cell_text(version.last_seen_at)}"
    heading = f"{version.origin}/robots.txt, {seen}{status}{cut}"
    if history:
        write_line(heading)
    else:
        print_message(heading)
    text = version.content if version.diff is None or not history else version.diff
    for line in text.splitlines():
        write_line(f"  {line}" if history else line)


AGENT = [Column("AGENT", kind=ColumnKind.NAME), Column("FETCHES FOR")]

policy_app = typer.Typer(rich_markup_mode=None)


@policy_app.command()
def policy(
    site: Annotated[
        str | None, typer.Argument(metavar="SITE", help="A host such as example.com.")
    ] = None,
    *,
    agent: Annotated[
        str | None, typer.Option(help="Show only this agent, with the lines that decide.")
    ] = None,
    path: Annotated[
        str | None, typer.Option(help="Show only this path or URL, with the lines that decide.")
    ] = None,
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(help="Read this robots.txt instead of a stored one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print which agents may fetch what of SITE, according to its robots.txt as last read.

    Example: siteatlas policy example.com --agent GPTBot --path /blog/
    """
    if (site is None) == (file is None):
        raise InputError("Use either SITE or --file.")
    settings = prepare()
    if file is not None:
        found = _judge_file(file, path, agent)
    else:
        found = run(_find_policy(settings, site or "", agent, path))
    if as_json:
        write_json(found)
    elif found.origin is None:
        print_message("No robots.txt of this site is stored.")
    elif agent or path:
        _write_decisions(found)
    else:
        _write_matrix(found)


def _judge_file(file: typer.FileBinaryRead, path: str | None, agent: str | None) -> PolicyView:
    content = file.read(MAX_BYTES + 1)
    cut = len(content) > MAX_BYTES
    read = RobotsFile(origin=file.name, content=robots_text(content), truncated=cut)
    return judge(read, [path_of(path or "/")], agent)


async def _find_policy(
    settings: Settings, site: str, agent: str | None, path: str | None
) -> PolicyView:
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        return await find_policy(session, domain, agent=agent, path=path)


def _write_decisions(found: PolicyView) -> None:
    columns = [Column("PATH", kind=ColumnKind.URL), Column("ALLOWED"), Column("LINE", right=True)]
    rows = [
        (one.agent, one.purpose, of.path, _answer(of), of.line, of.rule)
        for one in found.agents
        for of in one.decisions
    ]
    write_table([*AGENT, *columns, Column("RULE", kind=ColumnKind.PROSE)], rows)
    _print_remarks(found)


def _write_matrix(found: PolicyView) -> None:
    rows = [(one.agent, one.purpose, *map(_answer, one.decisions)) for one in found.agents]
    write_table([*AGENT, *(Column(path, kind=ColumnKind.NAME) for path in found.paths)], rows)
    _print_remarks(found)


def _answer(decision: DecisionView) -> str:
    """Whether a path is allowed, and how many rules say otherwise for what is below it."""
    answer = cell_text(decision.allowed)
    return f"{answer}, except {decision.exceptions}" if decision.exceptions else answer


def _print_remarks(found: PolicyView) -> None:
    for usage in found.usage:
        print_message(f"Line {usage.line}: {usage.text}")
        for fault in (*usage.invalid, *usage.contradicts):
            print_warning(f"  {fault}")
    if found.truncated:
        print_warning("Not all rules of this robots.txt were read.")
