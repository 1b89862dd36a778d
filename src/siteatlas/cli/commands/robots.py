"""`siteatlas robots`: the stored robots.txt of a site, and how it changed."""

from __future__ import annotations

from typing import Annotated

import typer

from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import ListJsonOption, SiteArgument
from siteatlas.cli.terminal.output import (
    cell_text,
    print_message,
    write_json,
    write_line,
)
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.pages import MAX_LIMIT
from siteatlas.insights.robots_files import RobotsFileView, list_robots_files
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

HISTORY_LIMIT = 20

app = typer.Typer(rich_markup_mode=None)


@app.command()
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
    """Read the newest versions of a robots.txt for `siteatlas robots`."""
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        return (await list_robots_files(session, domain.id, limit=limit)).items


def _write_version(version: RobotsFileView, *, history: bool) -> None:
    """Print the text of a version of robots.txt, or in a history what it changed."""
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
