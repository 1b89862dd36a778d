"""What changed: what was published of all sites or of one, newest first, with its first URLs.

The address is the whole state: a period, groups or kinds of changes, a page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.limits import READ
from siteatlas.catalog.change_feed import GROUPS, KINDS, URL_KINDS
from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.newest_changes import (
    FIRST,
    MAX_SCANS,
    MAX_SORTED,
    ChangesOverTime,
    Numbers,
    Period,
    by_group,
    count_changes,
    first_changes,
    last_scan_number,
    list_published,
    read_published,
)
from siteatlas.errors import InputError
from siteatlas.storage.session import AsyncSession
from siteatlas.web.charts import change_bars_of
from siteatlas.web.context import Context, ReadSession, Services
from siteatlas.web.templating import address, next_href, render

ROWS = 30
# Scans on a page whose first URLs are shown, so that it stays small.
OPENED = 12
EVENTS = 200
DAYS = 30
# Days of UTC that end today; "last" and "all" have none.
PERIODS = {"yesterday": 2, "7d": 7, "30d": 30, "last": None, "all": None}
USUAL_PERIOD = "7d"
DAY = timedelta(days=1)

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class ChosenPeriod:
    """What the address says about time: a name of `PERIODS`, or the days of a form.

    `until` is the last number of a link that shows the same for ever.
    """

    name: str
    first: date | None = None
    last: date | None = None
    until: int | None = None

    @classmethod
    def of(cls, request: Request) -> ChosenPeriod:
        """The period of a request; without one, the usual one."""
        asked = request.query_params
        first, last = _day(asked.get("from")), _day(asked.get("to"))
        if first or last:
            if first and last and first > last:
                raise InputError("The first day of a period must not be after its last day.")
            until = re.fullmatch(r"[0-9]{1,19}", asked.get("until", ""))
            return cls("days", first, last, int(until[0]) if until else None)
        name = asked.get("period", USUAL_PERIOD)
        days = PERIODS[name] if name in PERIODS else PERIODS[USUAL_PERIOD]
        today = datetime.now(UTC).date()
        name = name if name in PERIODS else USUAL_PERIOD
        return cls(name, today - (days - 1) * DAY, today) if days else cls(name)

    @property
    def state(self) -> dict[str, str]:
        """Its part of the address of the page."""
        return self.fixed(self.until) if self.name == "days" else {"period": self.name}

    def fixed(self, until: int | None) -> dict[str, str]:
        """The same days in an address that means them for ever, up to a number if one is given."""
        values = {"from": self.first, "to": self.last, "until": until}
        return {name: str(value) for name, value in values.items() if value is not None}

    @property
    def words(self) -> str:
        """Its days for the name of a file, or its name."""
        days = (day.isoformat() for day in (self.first, self.last) if day)
        return "-to-".join(days) or self.name

    async def numbers(
        self, session: AsyncSession, history: ChangesOverTime, domain_id: UUID | None
    ) -> Numbers:
        """What was published in it."""
        if self.name == "last":
            return await last_scan_number(session, domain_id)
        since = _midnight(self.first) if self.first else None
        until = _midnight(self.last) + DAY if self.last and self.name == "days" else None
        found = await history.numbers(session, since, until)
        if self.until is None:
            return found
        return replace(found, until=max(found.after, min(found.until, self.until)))


def _day(text: str | None) -> date | None:
    if not text:
        return None
    try:
        return min(date.fromisoformat(text), date.max - DAY)
    except ValueError as error:
        raise InputError("Days of a period are written as 2026-01-31.") from error


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that is a link, and how many it would show."""

    name: str
    href: str
    is_chosen: bool
    count: int | None = None


def _asked_kinds(request: Request) -> list[str]:
    """The groups and kinds of the address; what is unknown is left out."""
    asked = request.query_params.get("kinds", "").split(",")
    return [name for name in asked if name in GROUPS or name in KINDS]


def _kinds_of(asked: list[str]) -> frozenset[str]:
    return frozenset().union(*(GROUPS.get(name, {name}) for name in asked))


def _group_chips(
    base: str, kept: dict[str, str], asked: list[str], totals: dict[str, int]
) -> list[Chip]:
    """One chip for each group, which adds it to the filter or takes it out again."""
    kinds = _kinds_of(asked)
    chosen = [name for name, group in GROUPS.items() if group & kinds]
    chips = [Chip("All", f"{base}?{urlencode(kept)}", not chosen)]
    for name, count in by_group(totals).items():
        others = [one for one in GROUPS if (one in chosen) != (one == name)]
        href = f"{base}?{urlencode(kept | ({'kinds': ','.join(others)} if others else {}))}"
        chips.append(Chip(name.capitalize(), href, name in chosen, count))
    return chips


def _as_data(
    numbers: Numbers, kinds: frozenset[str], site: str | None, name: str
) -> dict[str, Any]:
    """The addresses of the same changes as a file and as JSON, which has later ones too."""
    base = f"/api/v3/{f'domains/{site}/' if site else ''}"
    kept = {"after": str(numbers.after), "kinds": ",".join(sorted(kinds))}
    of_file = {"what": "changes", "format": "csv", "columns": "short", "until": str(numbers.until)}
    of_file["name"] = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    return {
        "csv_href": address(f"{base}export", of_file | kept),
        "api_href": address(f"{base}changes", kept),
    }


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


@router.get("/changes/newest", dependencies=[READ], response_class=HTMLResponse)
async def show_newest(
    request: Request, session: ReadSession, context: Context, site: str | None = None
) -> HTMLResponse:
    """The newest number of a list, for open pages."""
    domain_id = (await find_domain_view(session, site)).id if site else None
    period = ChosenPeriod.of(request)
    numbers = await period.numbers(session, context.changes_over_time, domain_id)
    kinds = _kinds_of(_asked_kinds(request))
    page = await list_published(session, domain_id=domain_id, kinds=kinds, numbers=numbers, limit=1)
    return render(request, "parts/newest.html", page=page)


@router.get("/changes/{seq}", dependencies=[READ], response_class=HTMLResponse)
async def show_published(
    request: Request, session: ReadSession, seq: Annotated[int, Path(ge=1, le=2**63 - 1)]
) -> HTMLResponse:
    """The events of one number."""
    asked, numbers = _asked_kinds(request), Numbers(seq - 1, seq)
    kinds, base = _kinds_of(asked), f"/changes/{seq}"
    page = await read_published(
        session, seq, kinds=kinds, limit=EVENTS, cursor=request.query_params.get("cursor")
    )
    totals = await count_changes(session, numbers)
    filters = {"kinds": ",".join(asked)} if asked else {}
    return render(
        request,
        "published.html",
        page=page,
        seq=seq,
        groups=_group_chips(base, {}, asked, totals),
        max_sorted=MAX_SORTED,
        **_as_data(numbers, kinds, None, f"changes-{seq}"),
        next_href=next_href(base, page.next_cursor, filters),
    )


async def publications(
    session: AsyncSession,
    request: Request,
    base: str,
    kept: dict[str, str],
    domain_id: UUID | None = None,
    site: str | None = None,
) -> dict[str, Any]:
    """What the list shows, with its filters and its next page."""
    asked, period = _asked_kinds(request), ChosenPeriod.of(request)
    kinds = _kinds_of(asked)
    services: Services = request.app.state.web
    history = services.changes_over_time
    numbers = await period.numbers(session, history, domain_id)
    page = await list_published(
        session,
        domain_id=domain_id,
        kinds=kinds,
        numbers=numbers,
        limit=ROWS,
        cursor=request.query_params.get("cursor"),
    )
    opened = [one for one in page.items if one.count(kinds or URL_KINDS)][:OPENED]
    of_kinds = {"kinds": ",".join(asked)} if asked else {}
    of_site = {"site": site} if site else {}
    state = kept | period.state
    names = {name: kept | of_kinds | {"period": name} for name in PERIODS}
    return {
        "page": page,
        "runs": [(key, [*items]) for key, items in groupby(page.items, attrgetter("quiet"))],
        "first": await first_changes(session, opened, kinds or URL_KINDS),
        "most": FIRST,
        "kinds": kinds or URL_KINDS,
        "kinds_asked": of_kinds.get("kinds", ""),
        "periods": {name: f"{base}?{urlencode(state)}" for name, state in names.items()},
        "period": period,
        "groups": _group_chips(
            base, state, asked, await history.totals(session, numbers, domain_id)
        ),
        "searched": MAX_SCANS,
        "base": base,
        "kept": kept,
        "here": f"{base}?{urlencode(state | of_kinds)}",
        "fixed_href": f"{base}?{urlencode(kept | period.fixed(numbers.until) | of_kinds)}",
        "newest_href": f"/changes/newest?{urlencode(period.state | of_kinds | of_site)}",
        **_as_data(numbers, kinds, site, f"{(site or 'all-sites')[:150]}-changes-{period.words}"),
        "next_href": next_href(base, page.next_cursor, state | of_kinds),
    }
