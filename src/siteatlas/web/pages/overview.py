"""The overview page: the state of all sites, running jobs and the latest changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.limits import READ
from siteatlas.catalog.newest_changes import Period
from siteatlas.catalog.overview import (
    domains_in_trouble,
    has_history,
    latest_scans_with_changes,
    totals,
)
from siteatlas.queue.views import list_jobs
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import AsyncSession
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

router = APIRouter(include_in_schema=False)


@router.get("/", dependencies=[READ], response_class=HTMLResponse)
async def show_overview(
    request: Request,
    session: ReadSession,
    context: Context,
    days: Annotated[str, Query(max_length=16)] = "",
) -> HTMLResponse:
    """Totals of all sites, changes over time, running jobs, latest changes, sites in trouble."""
    load = await context.queue_load.run()
    chosen = days if days in RANGES else await _fitting_range(session)
    _, period, count = RANGES[chosen]
    changes = await context.changes_over_time.read(session, period, count)
    return render(
        request,
        "overview.html",
        totals=await totals(session),
        load=load,
        ranges={value: name for value, (name, _, _) in RANGES.items()},
        chosen=chosen,
        period=period.value,
        bars=change_bars_of(changes, period),
        added=sum(one.added for one in changes),
        removed=sum(one.removed for one in changes),
        scans=sum(one.scans for one in changes),
        running=await _running(session),
        latest=await latest_scans_with_changes(session),
        troubled=await domains_in_trouble(session),
    )


async def _fitting_range(session: AsyncSession) -> str:
    """The usual range, or on the first day of an installation one in which that day has a shape."""
    return USUAL_RANGE if await has_history(session) else FIRST_RANGE


async def _running(session: AsyncSession) -> list[object]:
    page = await list_jobs(session, status=JobStatus.PROCESSING.value, limit=6)
    return list(page.items)
