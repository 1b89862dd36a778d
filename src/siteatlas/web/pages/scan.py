"""Scan a site: the form on a separate page, and what it submits from every page."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from siteatlas.access.identity import CurrentIdentity, Identity
from siteatlas.access.limits import CurrentLimits
from siteatlas.access.marks import READ, SCAN
from siteatlas.access.ownership import require_right_to_watch
from siteatlas.access.queue_room import QueueTurn
from siteatlas.errors import AddressError, InputError, SiteatlasError
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy, parse_allowed_site
from siteatlas.queue.submission import submit_site
from siteatlas.settings import MAX_PAGES
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import get_session
from siteatlas.storage.statements.domains import find_domain
from siteatlas.web.context import Context, Services
from siteatlas.web.forms import Form, read_form
from siteatlas.web.templating import redirect, render

MAX_SITES = 1_000
# Enough for that many sites with addresses of ordinary length.
LARGER_FORMS = {"/scan": 256 * 1024}

router = APIRouter(include_in_schema=False)


@router.get("/scan", dependencies=[READ], response_class=HTMLResponse)
async def show_scan_form(request: Request) -> HTMLResponse:
    """The form without anything entered."""
    return render(request, "scan.html", value="", fault="")


@router.post("/scan", dependencies=[SCAN])
async def submit_scan_form(
    request: Request, context: Context, identity: CurrentIdentity, limits: CurrentLimits
) -> Response:
    """Queue a scan of each site, then show its job, or the list of jobs if there are several."""
    form = await read_form(request)
    try:
        addresses = _addresses(form, context.policy)
        async with limits.queue_room.turn(identity) as turn:
            await turn.require(len(addresses))
            numbers = [
                await _submit(address, form, context, identity, turn)
                async for address in turn.each(addresses)
            ]
    except SiteatlasError as error:
        value = form.value("sites")
        return render(
            request, "scan.html", status_code=error.http_status, value=value, fault=error.message
        )
    context.wake_consumer()
    return redirect(f"/jobs/{numbers[0]}" if len(numbers) == 1 else "/jobs")


def _addresses(form: Form, policy: EgressPolicy) -> list[WebAddress]:
    """The sites that were entered; an error names the line that cannot be used."""
    lines = list(dict.fromkeys(form.value("sites").split()))
    if not lines:
        raise InputError("Enter a host or the address of a sitemap.")
    if len(lines) > MAX_SITES:
        raise InputError(f"At most {MAX_SITES:,} sites can be submitted at a time.")
    return [_address(line, policy) for line in lines]


def _address(line: str, policy: EgressPolicy) -> WebAddress:
    try:
        return parse_allowed_site(line, policy)
    except AddressError as error:
        raise InputError(f"{line}: {error.message}") from error


@retry_when_busy
async def _submit(
    address: WebAddress,
    form: Form,
    context: Services,
    identity: Identity,
    turn: QueueTurn,
) -> int:
    """Queue a scan of one site, or join its active one; return the number of the job."""
    async with get_session() as session, session.begin():
        await turn.reserve(session)
        if form.is_checked("watch"):
            require_right_to_watch(identity, await find_domain(session, address.domain))
        job = await submit_site(
            session,
            address,
            created_by=identity.user_id,
            max_pages=form.whole_number("max_pages", "The maximum number of URLs", most=MAX_PAGES),
            watch=form.is_checked("watch"),
            interval_hours=context.settings.scan_interval_hours,
            max_attempts=context.settings.max_attempts,
        )
        return job.id
