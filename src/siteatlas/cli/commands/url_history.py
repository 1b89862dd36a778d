"""`siteatlas urls SITE --history URL`: where a URL is or was listed, and what changed."""

from __future__ import annotations

from datetime import UTC, datetime
from operator import itemgetter
from shlex import quote

from siteatlas.cli.terminal.change_lines import UNKNOWN_SITEMAP, listed_value
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.output import cell_text, print_message, write_json, write_line
from siteatlas.errors import NotFoundError
from siteatlas.insights.change_views import ChangeView
from siteatlas.insights.domains import DomainView, find_domain_view
from siteatlas.insights.pages import MAX_LIMIT
from siteatlas.insights.url_history import UrlHistoryPage, list_url_history
from siteatlas.insights.urls import UrlView
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
    """What to say if not all sitemaps were examined, with the command that continues."""
    command = f"siteatlas urls {domain.domain} --url {quote(url)} --state all --cursor {cursor}"
    return f"Not all sitemaps were examined; others may list this URL too. Continue with: {command}"


def _write_json(page: UrlHistoryPage) -> None:
    """Print changes and entries for programs."""
    write_json(
        {
            "items": page.items,
            "next_cursor": page.next_cursor,
            "entries": page.entries,
            "entries_cursor": page.entries_cursor,
        }
    )


def _write_history(page: UrlHistoryPage) -> None:
    """Print changes and entries for people."""
    for line in history_lines(page):
        write_line(line)
    if page.next_cursor is not None:
        print_message("There are older changes; the API shows them.")


def history_lines(page: UrlHistoryPage) -> list[str]:
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
    """One change of a URL, as a line."""
    when = cell_text(change.not_after) if change.not_after else "unknown"
    details = "; ".join(
        f"{name}: {listed_value(change.before, name)} -> {listed_value(change.after, name)}"
        for name in change.fields
    )
    line = f"{when}  {change.kind}  {_place(change)}  (feed number {change.seq})"
    return f"{line}  {details}" if details else line


def _place(change: ChangeView) -> str:
    """The sitemap of a change, or both sitemaps of a move."""
    sitemap = change.sitemap or UNKNOWN_SITEMAP
    if change.kind != "moved":
        return sitemap
    return f"from {change.previous_sitemap or UNKNOWN_SITEMAP} to {sitemap}"


def _entry_line(entry: UrlView) -> str:
    """The URL in one document, as a line."""
    removed = f", removed {cell_text(entry.removed_at)}" if entry.removed_at else ""
    return f"{cell_text(entry.first_seen_at)}  first seen  {entry.sitemap}{removed}"
