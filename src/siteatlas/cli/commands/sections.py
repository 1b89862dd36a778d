"""`siteatlas sections`: the URLs of a site by section, or by the month of their date."""

from __future__ import annotations

from typing import Annotated

import typer

from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import JsonOption, SiteArgument
from siteatlas.cli.terminal.output import (
    Column,
    ColumnKind,
    percent,
    print_message,
    write_json,
    write_table,
)
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.sections import (
    DEFAULT_SECTIONS,
    MAX_SECTIONS,
    SectionsView,
    domain_sections,
)
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

COUNTS = [Column("URLS", right=True, kind=ColumnKind.COUNT), Column("SHARE", right=True)]

app = typer.Typer(rich_markup_mode=None)


@app.command()
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
    """Read what `siteatlas sections` prints."""
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        return await domain_sections(session, domain.id, limit=limit)


def _write_sections(found: SectionsView) -> None:
    """Print the sections of a site, the largest first."""
    rows = [(one.section, one.url_count) for one in found.sections]
    _write_counts("SECTION", [*rows, ("(other)", found.other_url_count)], found)


def _write_months(found: SectionsView) -> None:
    """Print the months of a site, the oldest first."""
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
