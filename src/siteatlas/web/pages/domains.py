"""The list of sites: which are watched, which need attention; actions on one or many of them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from siteatlas.access.identity import CurrentIdentity, Identity, require_owner
from siteatlas.access.limits import FILTERED, READ, SCAN
from siteatlas.catalog.domains import DomainState, change_domain, find_domain, list_domains
from siteatlas.catalog.scans import ScanPoint, recent_scans
from siteatlas.errors import AddressError, DomainNotFound, InputError
from siteatlas.net.address import parse_site
from siteatlas.queue.operator_actions import remove_domain_and_jobs
from siteatlas.storage.models import ScanState
from siteatlas.storage.session import get_session, retry_when_busy
from siteatlas.web.charts import ScanMark
from siteatlas.web.context import Context, ReadSession, apply_to_each, read_form
from siteatlas.web.templating import duration, exact, next_href, redirect, render

router = APIRouter(include_in_schema=False)


@router.get("/search", dependencies=[READ])
async def search(
    _request: Request, session: ReadSession, q: Annotated[str, Query(max_length=2048)] = ""
) -> Response:
    """A number is a job; an address whose site is known leads there; anything else is a filter."""
    text = q.strip()
    if text.isdecimal():
        return redirect(f"/jobs/{text}")
    try:
        address = parse_site(text)
    except AddressError:
        return redirect(f"/domains?{urlencode({'q': text})}")
    if await find_domain(session, address.domain) is None:
        return redirect(f"/domains?{urlencode({'q': text})}")
    if address.is_site_root:
        return redirect(f"/domains/{address.domain}")
    return redirect(
        f"/domains/{address.domain}?{urlencode({'tab': 'urls', 'contains': address.path})}"
    )


@router.get("/problems", dependencies=[READ], response_class=HTMLResponse)
async def show_problems(request: Request, context: Context) -> HTMLResponse:
    """Problems by code, the most widespread first."""
    return render(request, "problems.html", problems=await context.problem_totals.run())


ROWS = 50
FILTERS = {
    "": "All",
    DomainState.ATTENTION.value: "Needs attention",
    DomainState.WATCHED.value: "Watched",
    DomainState.PAUSED.value: "Paused",
    DomainState.FAILING.value: "Failing",
}


@router.get("/domains", dependencies=[READ, FILTERED], response_class=HTMLResponse)
async def show_domains(
    request: Request,
    session: ReadSession,
    *,
    state: str = "",
    q: Annotated[str, Query(max_length=255)] = "",
    cursor: Annotated[str | None, Query(max_length=2048)] = None,
    changed: Annotated[int | None, Query(ge=0)] = None,
    left: Annotated[int, Query(ge=0)] = 0,
) -> HTMLResponse:
    """One page of sites with the strip of their last scans.

    After an action on many sites, it says how many were changed and how many were left.
    """
    wanted = DomainState(state) if state in set(DomainState) else None
    page = await list_domains(
        session, state=wanted, contains=q.strip() or None, limit=ROWS, cursor=cursor
    )
    history = await recent_scans(session, [site.id for site in page.items])
    kept = {name: value for name, value in (("state", state), ("q", q)) if value}
    return render(
        request,
        "domains.html",
        sites=page.items,
        strips={key: [scan_mark(point) for point in points] for key, points in history.items()},
        counts={
            key: [point.url_count for point in points if point.state is ScanState.PUBLISHED]
            for key, points in history.items()
        },
        last={key: points[-1] for key, points in history.items() if points},
        filters=FILTERS,
        state=state,
        shows_reason=wanted in {DomainState.ATTENTION, DomainState.FAILING},
        q=q,
        changed=changed,
        left=left,
        next_href=next_href("/domains", page.next_cursor, kept),
    )


def scan_mark(point: ScanPoint) -> ScanMark:
    """A scan as a bar of the strip."""
    result = "fail"
    if point.state is ScanState.PUBLISHED:
        result = "part" if point.partial else "ok"
    elif point.state is ScanState.CANCELLED:
        result = "none"
    word = {"ok": "completed", "part": "partial", "fail": "failed", "none": "cancelled"}[result]
    title = (
        f"{exact(point.started_at)}: {word}, {duration(point.seconds)}, {point.url_count:,} URLs"
    )
    return ScanMark(result, point.seconds, title)


@router.post("/domains", dependencies=[SCAN])
async def act_on_domains(request: Request, context: Context, identity: CurrentIdentity) -> Response:
    """Pause, resume or remove the selected sites; those that cannot be changed are left alone."""
    form = await read_form(request)
    names, action = form.many("domain")[:1_000], form.value("action")
    if not names:
        raise InputError("Select at least one site first.")
    sites = {parse_site(name).domain for name in names}

    async def act(site: str) -> None:
        await _act(site, action, identity)

    try:
        changed = await apply_to_each(sorted(sites), act)
    finally:
        context.notify_scheduler()
    counts = {"changed": changed, "left": len(sites) - changed}
    return redirect(f"/domains?{urlencode(counts)}")


@retry_when_busy
async def _act(name: str, action: str, identity: Identity) -> None:
    async with get_session() as session, session.begin():
        if action == "remove":
            await remove_domain_and_jobs(session, name, identity.limited_to_user)
            return
        if action not in {"pause", "resume"}:
            raise InputError("Choose what to do with the selected sites.")
        found = await find_domain(session, name, lock=True)
        if found is None:
            raise DomainNotFound
        require_owner(identity, found.created_by)
        await change_domain(session, found, paused=action == "pause")
