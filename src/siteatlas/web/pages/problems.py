"""Problems in the sitemaps of all sites: what is wrong, how often, and where to look."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.marks import READ
from siteatlas.web.context import Context
from siteatlas.web.templating import render

router = APIRouter(include_in_schema=False)


@router.get("/problems", dependencies=[READ], response_class=HTMLResponse)
async def show_problems(request: Request, context: Context) -> HTMLResponse:
    """Problems by code, the most widespread first."""
    return render(request, "problems.html", problems=await context.problem_totals.run())
