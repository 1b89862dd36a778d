"""The overview page: which sites need attention, what is new, what runs, and how much changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.authentication import VISIT_COOKIE
from siteatlas.access.limits import READ
from siteatlas.catalog.newest_changes import Period, by_group
from siteatlas.catalog.overview import (
    domains_in_trouble,
    first_scan_at,
    latest_scans_with_changes,
    totals,
)
from siteatlas.queue.views import list_jobs
from siteatlas.storage.models import JobStatus
from siteatlas.web.charts import change_bars_of
from siteatlas.web.context import Context, ReadSession
from siteatlas.web.templating import render

# The length of the chart: its name, and what a bar stands for.
RANGES = {
    "1": ("24 hours", Period.HOUR, 24),
    "7": ("7 days", Period.DAY, 7),
    "30": ("30 days", Period.DAY, 30),
    "90": ("90 days", Period.DAY, 90),
}
FIRST_RANGE, USUAL_RANGE = "1", "30"
VISIT = "visit"
# Pages that are opened within this time of each other are one visit.
VISIT_SECONDS = 30 * 60
REMEMBERED = timedelta(days=30)

router = APIRouter(include_in_schema=False)


@router.get("/", dependencies=[READ], response_class=HTMLResponse)
async def show_overview(
    request: Request,
    session: ReadSession,
    context: Context,
    days: Annotated[str, Query(max_length=16)] = "",
) -> HTMLResponse:
    """Sites that need attention, what is new since the last visit or in a range, running jobs."""
    load, now = await context.queue_load.run(), datetime.now(UTC)
    ended, seen = _visit(request, now)
    first_scan = await first_scan_at(session)
    # The first day of an installation has a shape in hours only.
    is_young = first_scan is None or first_scan > now - timedelta(days=1)
    shown = days if days in RANGES else FIRST_RANGE if is_young else USUAL_RANGE
    _, period, count = RANGES[shown]
    history = context.changes_over_time
    changes = await history.read(session, period, count)
    chosen, since = shown, changes[0].start
    before = since - count * period.length
    if ended is not None and days not in RANGES:
        # From a full hour on, so that what is behind it is counted once an hour.
        before = (ended - (now - ended)).replace(minute=0, second=0, microsecond=0)
        chosen, since = VISIT, ended
    news = await history.numbers(session, since, None)
    earlier = await history.numbers(session, before, since)
    is_comparable = first_scan is not None and first_scan <= before
    response = render(
        request,
        "overview.html",
        totals=await totals(session),
        troubled=await domains_in_trouble(session),
        load=load,
        ranges={value: name for value, (name, _, _) in RANGES.items()},
        chosen=chosen,
        visit_ended=ended,
        since=since,
        news=by_group(await history.totals(session, news)),
        earlier=by_group(await history.totals(session, earlier)) if is_comparable else None,
        latest=await latest_scans_with_changes(session, news.after),
        running=(await list_jobs(session, status=JobStatus.PROCESSING.value, limit=6)).items,
        shown=shown,
        period=period.value,
        bars=change_bars_of(changes, period),
    )
    is_tls = request.app.state.access.front.uses_tls(request.scope)
    response.set_cookie(
        VISIT_COOKIE,
        seen,
        max_age=int(REMEMBERED.total_seconds()),
        secure=is_tls,
        httponly=True,
        samesite="lax",
    )
    return response


def _visit(request: Request, now: datetime) -> tuple[datetime | None, str]:
    """When the last visit ended, if that is remembered, and the cookie that remembers this one.

    A page that updates itself was not opened.
    """
    seconds = int(now.timestamp())
    ended, seen = map(int, request.cookies.get(VISIT_COOKIE, "0-0").split("-"))
    if "hx-request" not in request.headers:
        ended, seen = (seen if seconds - seen > VISIT_SECONDS else ended), seconds
    is_remembered = seconds - REMEMBERED.total_seconds() < ended < seconds
    return datetime.fromtimestamp(ended, UTC) if is_remembered else None, f"{ended}-{seen}"
