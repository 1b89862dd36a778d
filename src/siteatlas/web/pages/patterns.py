"""All parts that pages are made of, in all their states, for those who change the style sheet.

Served only with the log level `debug`.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.marks import READ
from siteatlas.web.charts import NamedValue, PeriodBar, ScanMark
from siteatlas.web.formatting import TONES
from siteatlas.web.templating import render

HOURS = [PeriodBar(f"{hour:02d}:00", hour * 7 % 40, hour * 5 % 23) for hour in range(24)]
MONTHS = [NamedValue(f"2026-{month:02d}", month * 37 % 90) for month in range(1, 13)]
RESULTS = ("ok", "part", "fail", "none")
STRIP = [ScanMark(RESULTS[n % 7 % 4], 1 + n % 5, f"Scan {n}") for n in range(20)]
CHANGES = {"added": 1200, "back": 3, "removed": 45, "expired": 6, "changed": 789, "moved": 10}

router = APIRouter(include_in_schema=False)


@router.get("/_patterns", dependencies=[READ], response_class=HTMLResponse)
async def show_patterns(request: Request) -> HTMLResponse:
    """The parts, with sample values."""
    return render(
        request,
        "patterns.html",
        states=list(TONES),
        hours=HOURS,
        months=MONTHS,
        strip=STRIP,
        changes=CHANGES,
        line=[bar.added for bar in HOURS],
    )
