"""What changed: what was published of all sites or of one, newest first, with its events."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.limits import READ
from siteatlas.catalog.newest_changes import MAX_SCANS, Period, list_published, read_published
from siteatlas.storage.models import ChangeKind, FeedEventKind
from siteatlas.storage.session import AsyncSession
from siteatlas.web.charts import change_bars_of
from siteatlas.web.context import Context, ReadSession
from siteatlas.web.templating import next_href, render

ROWS = 100
DAYS = 30
EVENT_KINDS = (
    FeedEventKind.ROBOTS_CHANGED,
    FeedEventKind.SITEMAP_ADDED,
    FeedEventKind.SITEMAP_GONE,
    FeedEventKind.REMOVALS_HELD,
)
KINDS = tuple(kind.value for kind in (*ChangeKind, *EVENT_KINDS))

router = APIRouter(include_in_schema=False)


@router.get("/changes", dependencies=[READ], response_class=HTMLResponse)
async def show_changes(request: Request, session: ReadSession, context: Context) -> HTMLResponse:
    """What was published of all sites."""
    changes = await context.changes_over_time.read(session, Period.DAY, DAYS)
    return render(
        request,
        "changes.html",
        bars=change_bars_of(changes, Period.DAY),
        any_changes=any(one.added or one.removed for one in changes),
        days=DAYS,
        **await publications(session, request, "/changes", {}),
    )


@router.get("/changes/{seq}", dependencies=[READ], response_class=HTMLResponse)
async def show_published(
    request: Request, session: ReadSession, seq: Annotated[int, Path(ge=1, le=2**63 - 1)]
) -> HTMLResponse:
    """The events of one number: a part of the list, or a separate page."""
    page = await read_published(session, seq, 200)
    is_part = request.headers.get("HX-Request") == "true"
    template = "parts/events.html" if is_part else "published.html"
    return render(request, template, page=page, seq=seq)


async def publications(
    session: AsyncSession,
    request: Request,
    base: str,
    kept: dict[str, str],
    domain_id: UUID | None = None,
) -> dict[str, Any]:
    """What the list shows, with its filter and its next page."""
    asked = [kind for kind in request.query_params.get("kinds", "").split(",") if kind in KINDS]
    page = await list_published(
        session,
        domain_id=domain_id,
        kinds=frozenset(asked),
        limit=ROWS,
        cursor=request.query_params.get("cursor"),
    )
    filters = kept | ({"kinds": ",".join(asked)} if asked else {})
    return {
        "page": page,
        "groups": [(key, [*items]) for key, items in groupby(page.items, attrgetter("quiet"))],
        "kinds": KINDS,
        "chosen": asked,
        "searched": MAX_SCANS,
        "base": base,
        "kept": kept,
        "here": f"{base}?{urlencode(filters)}",
        "next_href": next_href(base, page.next_cursor, filters),
    }
