"""`siteatlas urls SITE --history URL`: where a URL is or was listed, and what changed."""

from __future__ import annotations

from typing import Any

from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.output import print_message, write_json, write_line
from siteatlas.errors import NotFoundError
from siteatlas.insights.change_views import ChangeView
from siteatlas.insights.domains import DomainView, find_domain_view
from siteatlas.insights.pages import MAX_LIMIT
from siteatlas.insights.url_history import UrlHistoryPage, list_url_history
from siteatlas.insights.urls import UrlView
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

TIME = "%Y-%m-%d %H:%M:%SZ"


async def print_history(settings: Settings, site: str, url: str, *, as_json: bool) -> None:
    """Print the history of a URL, its newest change first."""
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        page = await list_url_history(session, domain.id, url, limit=MAX_LIMIT)
    if not page.items and not page.entries:
        raise NotFoundError(_not_stored(url, domain))
    if as_json:
        write_json({"items": page.items, "next_cursor": page.next_cursor, "entries": page.entries})
        return
    _write_history(page)


def _not_stored(url: str, domain: DomainView) -> str:
    """What to say of a URL without a history; a path alone is a common mistake."""
    message = "This URL is not stored for this site."
    if "://" in url:
        return message
    return f"{message} Write the full URL, such as {domain.base_url}{url.lstrip('/')}"


def _write_history(page: UrlHistoryPage) -> None:
    """Print changes and entries for people."""
    for change in page.items:
        write_line(_change_line(change))
    for entry in page.entries:
        write_line(_entry_line(entry))
    if page.next_cursor is not None:
        print_message("There are older changes; the API shows them.")


def _change_line(change: ChangeView) -> str:
    """One change of a URL, as a line."""
    when = f"{change.not_after:{TIME}}" if change.not_after else "unknown"
    details = "; ".join(
        f"{name}: {_value(change.before, name)} -> {_value(change.after, name)}"
        for name in change.fields
    )
    line = f"{when}  {change.kind}  {change.sitemap}  (feed number {change.seq})"
    return f"{line}  {details}" if details else line


def _entry_line(entry: UrlView) -> str:
    """The URL in one document, as a line."""
    removed = f", removed {entry.removed_at:{TIME}}" if entry.removed_at else ""
    return f"{entry.first_seen_at:{TIME}}  first seen  {entry.sitemap}{removed}"


def _value(state: dict[str, Any] | None, name: str) -> object:
    """A value of a listed state, as its change shows it."""
    return (state or {}).get(name, "none")
