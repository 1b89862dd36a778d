"""The history of one URL: where it is or was listed, and what changed with which scan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.marks import READ
from siteatlas.insights.change_views import FIELDS, ChangeView
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.url_history import list_url_history
from siteatlas.scanner.reading.entries import MAX_URL_CHARS
from siteatlas.web.context import ReadSession
from siteatlas.web.formatting import NOTHING, exact
from siteatlas.web.templating import next_href, render

ROWS = 50
# PostgreSQL stores no NUL in text.
NO_NUL = r"^[^\x00]*$"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class ListedValue:
    """What a sitemap listed for a URL under one name, before and after a change."""

    name: str
    before: str
    after: str


@router.get("/domains/{domain}/url", dependencies=[READ], response_class=HTMLResponse)
async def show_url(
    request: Request,
    session: ReadSession,
    domain: Annotated[str, Path(max_length=2048)],
    url: Annotated[str, Query(min_length=1, max_length=MAX_URL_CHARS, pattern=NO_NUL)],
    cursor: Annotated[str | None, Query(max_length=2048)] = None,
) -> HTMLResponse:
    """One page of the changes of a URL, newest first; the first one with its sitemaps."""
    site = await find_domain_view(session, domain)
    page = await list_url_history(session, site.id, url, limit=ROWS, cursor=cursor)
    return render(
        request,
        "url.html",
        site=site,
        url=url,
        page=page,
        values={change.id: listed_values(change) for change in page.items},
        first_seen=min((entry.first_seen_at for entry in page.entries), default=None),
        listed=[entry for entry in page.entries if entry.removed_at is None],
        is_first_page=cursor is None,
        next_href=next_href(f"/domains/{site.domain}/url", page.next_cursor, {"url": url}),
    )


def listed_values(change: ChangeView) -> list[ListedValue]:
    """The values that differ, or if an entry came or went, all that are listed for it."""
    before, after = change.before or {}, change.after or {}
    names = change.fields or [name for name in FIELDS if name in before or name in after]
    return [ListedValue(name, _shown(before, name), _shown(after, name)) for name in names]


def _shown(state: dict[str, Any], name: str) -> str:
    """A listed value as text: a date as it was listed, an object as JSON."""
    value = state.get("lastmod_text") if name == "lastmod" else None
    value = state.get(name) if value is None else value
    if value is None:
        return NOTHING
    if isinstance(value, datetime):
        return exact(value)
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
