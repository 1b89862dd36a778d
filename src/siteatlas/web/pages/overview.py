"""The overview: is all well, what is running, what changed."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.marks import READ
from siteatlas.insights.jobs import list_jobs
from siteatlas.insights.overview import (
    changes_per_day,
    domains_in_trouble,
    latest_changes,
    totals,
)
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import AsyncSession
from siteatlas.web.charts import DayChange
from siteatlas.web.context import Context, ReadSession
from siteatlas.web.templating import render

RANGES = {"7": "7 days", "30": "30 days", "90": "90 days"}
DEFAULT_RANGE = "30"
RUNNING_ROWS = 6

router = APIRouter(include_in_schema=False)


@router.get("/", dependencies=[READ], response_class=HTMLResponse)
async def show_overview(
    request: Request, session: ReadSession, context: Context, days: str = DEFAULT_RANGE
) -> HTMLResponse:
    """Totals of all sites, changes per day, running jobs, latest changes, sites in trouble."""
    chosen = days if days in RANGES else DEFAULT_RANGE
    load = await context.queue_load.run()
    daily = await changes_per_day(session, int(chosen))
    return render(
        request,
        "overview.html",
        totals=await totals(session),
        load=load,
        ranges=RANGES,
        chosen=chosen,
        daily=[DayChange(f"{day.day:%-d %b}", day.added, day.removed) for day in daily],
        added=sum(day.added for day in daily),
        removed=sum(day.removed for day in daily),
        scans=sum(day.scans for day in daily),
        running=await _running(session),
        latest=await latest_changes(session),
        troubled=await domains_in_trouble(session),
    )


async def _running(session: AsyncSession) -> list[object]:
    """The jobs that run now, as cards."""
    page = await list_jobs(session, status=JobStatus.PROCESSING.value, limit=RUNNING_ROWS)
    return list(page.items)
