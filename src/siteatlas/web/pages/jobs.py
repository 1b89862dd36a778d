"""The queue at work: lists of jobs, one job live, and cancelling and retrying jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, BackgroundTasks, Path, Query, Request
from fastapi.responses import HTMLResponse, Response

from siteatlas.access.identity import (
    CurrentIdentity,
    Identity,
    is_own,
    require_owner,
    require_right_to_watch,
)
from siteatlas.access.limits import AS_FILE, READ, SCAN, AccessLimits, CurrentLimits, QueueTurn
from siteatlas.catalog.domains import find_domain, list_candidates
from siteatlas.catalog.scans import find_scan_of_job, list_scan_documents
from siteatlas.errors import AddressError, InputError, NotOwner, SiteatlasError
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy, parse_allowed_site
from siteatlas.processor.processing import recount_site
from siteatlas.queue.operator_actions import cancel, retry
from siteatlas.queue.submission import submit_site
from siteatlas.queue.views import JobView, find_job, list_attempts, list_jobs
from siteatlas.settings import MAX_PAGES
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import get_session, retry_when_busy
from siteatlas.text import site_in_line
from siteatlas.web.context import (
    Context,
    Form,
    ReadSession,
    Services,
    apply_to_each,
    csv_file,
    read_form,
)
from siteatlas.web.templating import explain, next_href, redirect, render

ROWS = 50
MAX_MATCHING = 1_000
# What the file of the list has.
FIELDS = "id status domain attempt error_code error created_at started_at finished_at"
STATUSES = {
    "": "All",
    JobStatus.PENDING.value: "Waiting",
    JobStatus.PROCESSING.value: "Running",
    JobStatus.COMPLETED.value: "Completed",
    JobStatus.FAILED.value: "Failed",
    JobStatus.CANCELLED.value: "Cancelled",
}
RETRY = "retry"
# What can be done with jobs, and what is said of those with which it was done.
ACTIONS = {"cancel": "cancelled", RETRY: "queued again"}
PHASES = ("waiting", "reading", "comparing", "done")

router = APIRouter(include_in_schema=False)
JobIdent = Annotated[str, Path(max_length=64)]


@router.get("/jobs", dependencies=[READ, AS_FILE], response_class=HTMLResponse)
async def show_jobs(
    request: Request,
    session: ReadSession,
    context: Context,
    *,
    status: str = "",
    domain: Annotated[str, Query(max_length=255)] = "",
    cursor: Annotated[str | None, Query(max_length=2048)] = None,
    done: str = "",
    changed: Annotated[int | None, Query(ge=0)] = None,
    left: Annotated[int, Query(ge=0)] = 0,
    queued: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """One page of jobs, newest first; after an action on many, what it changed and left."""
    load = await context.queue_load.run()
    wanted = status if status in STATUSES else ""
    read = partial(list_jobs, status=wanted or None, domain=domain.strip() or None)
    if request.state.is_file:
        return csv_file("jobs", FIELDS, read)
    page = await read(session, limit=ROWS, cursor=cursor)
    kept = {name: value for name, value in (("status", wanted), ("domain", domain)) if value}
    return render(
        request,
        "jobs.html",
        jobs=page.items,
        load=load,
        statuses=STATUSES,
        status=wanted,
        domain=domain,
        filters=urlencode(kept),
        changed=changed,
        left=left,
        queued=queued,
        done=ACTIONS.get(done, "changed"),
        next_href=next_href("/jobs", page.next_cursor, kept),
    )


@router.get("/jobs/{job_id}", dependencies=[READ], response_class=HTMLResponse)
async def show_job(request: Request, session: ReadSession, job_id: JobIdent) -> HTMLResponse:
    """One job: its progress, its documents, its attempts, and why it failed if it did."""
    job = await find_job(session, job_id)
    scan = await find_scan_of_job(session, job.id)
    candidates = []
    if job.domain_id is not None and job.error_code is not None:
        candidates = (await list_candidates(session, job.domain_id)).items
    return render(
        request,
        "job.html",
        job=job,
        scan=scan,
        phase=_phase(job.status, job.progress),
        phases=PHASES,
        durations=_durations(job),
        documents=await list_scan_documents(session, scan.id) if scan else [],
        attempts=await list_attempts(session, job.id),
        candidates=candidates,
        explanation=explain(job.error_code),
        reasons=[explain(code) for code in job.result.get("reasons", ())],
    )


def _phase(status: JobStatus, progress: float) -> int:
    if status is JobStatus.PENDING:
        return 0
    if status is JobStatus.PROCESSING:
        return 2 if progress >= 0.95 else 1  # reading ends there
    return len(PHASES) - 1


def _durations(job: JobView) -> list[float | None]:
    waited = job.started_at - job.created_at if job.started_at and job.attempt == 1 else None
    read = job.finished_at - job.started_at if job.finished_at and job.started_at else None
    return [time.total_seconds() if time else None for time in (waited, read, None, None)]


@router.post("/jobs/{job_id}/{action}", dependencies=[SCAN])
async def act_on_job(
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
    job_id: JobIdent,
    action: str,
    afterwards: BackgroundTasks,
) -> Response:
    """Cancel or retry one job."""
    number, is_cancelled = await _act_in_turn(job_id, action, identity, limits)
    if is_cancelled:
        afterwards.add_task(recount_site, number)
    context.wake_consumer()
    return redirect(f"/jobs/{number}")


@router.post("/jobs", dependencies=[SCAN])
async def act_on_matching_jobs(
    request: Request,
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
    afterwards: BackgroundTasks,
) -> Response:
    """Cancel or retry the selected jobs, or those that match the filters, up to `MAX_MATCHING`.

    Those of other users are left alone unless an admin does it. So is a job whose site has another
    active one; the page then says how many were left.
    """
    form = await read_form(request)
    kept = {name: form.value(name) for name in ("status", "domain")}
    # Its own name: without a selection, it must not apply to all that match.
    if action := form.value("selected"):
        idents = form.many("job")
        found = len(idents)
        if not idents:
            raise InputError("Select at least one job first.")
    else:
        action = form.value("action")
        found, idents = await _matching_jobs(action, identity, **kept)

    async def act(ident: str) -> None:
        number, is_cancelled = await _act_in_turn(ident, action, identity, limits)
        if is_cancelled:
            afterwards.add_task(recount_site, number)

    try:
        changed = await apply_to_each(idents, act)
    finally:
        context.wake_consumer()
    counts = {"done": action, "changed": changed, "left": found - changed}
    return redirect(f"/jobs?{urlencode(kept | counts)}")


async def _matching_jobs(
    action: str, identity: Identity, status: str, domain: str
) -> tuple[int, list[str]]:
    """How many jobs match, and the numbers of those to which the action can be applied."""
    if status not in STATUSES or not status:
        raise InputError("Choose a status first: the action applies to all jobs that have it.")
    async with get_session() as session, session.begin():
        page = await list_jobs(session, status=status, domain=domain or None, limit=MAX_MATCHING)
    own = [job for job in page.items if is_own(identity, *_owners(job, action))]
    return len(page.items), [str(job.id) for job in _newest_of_sites(own)]


def _newest_of_sites(jobs: Sequence[JobView]) -> Iterable[JobView]:
    """The newest job of each site, because a site has at most one active job; oldest first."""
    return {job.domain or str(job.id): job for job in reversed(jobs)}.values()


async def _act_in_turn(
    ident: str, action: str, identity: Identity, limits: AccessLimits
) -> tuple[int, bool]:
    async with limits.queue_room.turn(identity, is_needed=action == RETRY) as turn:
        return await _act(ident, action, identity, turn)


@retry_when_busy
async def _act(ident: str, action: str, identity: Identity, turn: QueueTurn) -> tuple[int, bool]:
    """Cancel or retry a job in a separate transaction.

    Return its number and whether it is cancelled. A running job is not until its worker stops it,
    and then the worker counts the site.
    """
    if action not in ACTIONS:
        raise InputError("A job can be cancelled or retried.")
    async with get_session() as session, session.begin():
        job = await find_job(session, ident)
        require_owner(identity, *_owners(job, action))
        if action == RETRY:
            await turn.reserve(session, owner=job.created_by)
            await retry(session, job.id)
            return job.id, False
        status = await cancel(session, job.id, identity.limited_to_user)
        return job.id, status == JobStatus.CANCELLED


def _owners(job: JobView, action: str) -> Sequence[UUID]:
    """Who may act on a job: anyone may withdraw a request, but a retry counts for the owner."""
    return [job.created_by] if action == RETRY else job.users


MAX_SITES = 1_000
# Enough for that many sites with addresses of ordinary length.
LARGER_FORMS = {"/scan": 256 * 1024}


@router.get("/scan", dependencies=[READ], response_class=HTMLResponse)
async def show_scan_form(request: Request) -> HTMLResponse:
    """The form without anything entered."""
    return render(request, "scan.html")


@router.post("/scan", dependencies=[SCAN])
async def submit_scan_form(
    request: Request, context: Context, identity: CurrentIdentity, limits: CurrentLimits
) -> Response:
    """Queue a scan of each site, then show its job, or the list of jobs if there are several.

    Lines that cannot be used stay in the form, with their reasons.
    """
    form, usable, queued = await read_form(request), dict[str, WebAddress](), dict[str, int]()
    refused, fault = dict[str, SiteatlasError](), None
    try:
        max_pages = form.whole_number("max_urls", "The maximum number of URLs", most=MAX_PAGES)
        usable = _usable(form, context.policy, refused)
        async with limits.queue_room.turn(identity) as turn:
            await turn.require(len(usable))
            async for line in turn.each(usable):
                try:
                    queued[line] = await _submit(
                        usable[line], form, max_pages, context, identity, turn
                    )
                except NotOwner as error:
                    refused[line] = error
    except SiteatlasError as error:
        fault = error
    if queued:
        context.wake_consumer()
    if len(queued) == 1 and not (fault or refused):
        return redirect(f"/jobs/{queued.popitem()[1]}")
    if not (fault or refused):
        return redirect(f"/jobs?queued={len(queued)}")
    left = "\n".join([*refused, *(line for line in usable if line not in {*queued, *refused})])
    return render(
        request,
        "scan.html",
        status_code=200 if queued else (fault or next(iter(refused.values()))).http_status,
        value=form.value("sites") if fault and not queued else left,
        fault=fault and fault.message,
        refused=refused,
        queued=len(queued),
    )


def _usable(
    form: Form, policy: EgressPolicy, refused: dict[str, SiteatlasError]
) -> dict[str, WebAddress]:
    """The addresses of the lines that name a site; the other lines are added to `refused`."""
    lines = list(dict.fromkeys(filter(None, map(site_in_line, form.value("sites").splitlines()))))
    if not lines:
        raise InputError("Enter a host or the address of a sitemap.")
    if len(lines) > MAX_SITES:
        raise InputError(f"At most {MAX_SITES:,} sites can be submitted at a time.")
    usable = {}
    for line in lines:
        try:
            usable[line] = parse_allowed_site(line, policy)
        except AddressError as error:
            refused[line] = error
    return usable


@retry_when_busy
async def _submit(
    address: WebAddress,
    form: Form,
    max_pages: int | None,
    context: Services,
    identity: Identity,
    turn: QueueTurn,
) -> int:
    async with get_session() as session, session.begin():
        await turn.reserve(session)
        if form.is_checked("watch"):
            require_right_to_watch(identity, await find_domain(session, address.domain))
        job = await submit_site(
            session,
            address,
            created_by=identity.user_id,
            max_pages=max_pages,
            watch=form.is_checked("watch"),
            interval_hours=context.settings.scan_interval_hours,
            max_attempts=context.settings.max_attempts,
        )
        return job.id
