"""Submit a site, and follow its scan."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response, status

from siteatlas.access.identity import CurrentIdentity, Identity, require_right_to_watch
from siteatlas.access.limits import READ, SCAN, CurrentLimits
from siteatlas.api.context import (
    NO_WORKER,
    STATUS_PATH,
    Context,
    JobIdent,
    ReadSession,
    SingleReadSession,
    WriteSession,
    parse_site_field,
)
from siteatlas.api.limits import ParsedBodyRoute
from siteatlas.api.openapi import LOCATION, problems
from siteatlas.api.problems import FieldRefused
from siteatlas.api.schemas.jobs import (
    BatchCreated,
    BatchItemAnswer,
    BatchRequest,
    ScanAccepted,
    ScanRequest,
)
from siteatlas.catalog.domains import find_domain
from siteatlas.catalog.views import MAX_ADDRESS_CHARS
from siteatlas.errors import AddressError, InputError, JobActive
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy, parse_allowed_site
from siteatlas.queue.fence import SubmittedJob
from siteatlas.queue.submission import (
    BatchEntry,
    SiteSubmission,
    build_submission,
    create_batch,
    join_active_job,
)
from siteatlas.queue.views import (
    BatchStatusView,
    JobStatusView,
    find_batch,
    find_job,
    list_batch_items,
)
from siteatlas.scanner.options import ChildFilter
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import (
    execute_autocommit,
    get_autocommit_session,
    get_session,
    retry_when_busy,
)
from siteatlas.text import storable

log = get_logger("api")
router = APIRouter(
    prefix="/api/v3/sitemap",
    tags=["scans"],
    route_class=ParsedBodyRoute,
)


@router.post(
    "/scan",
    dependencies=[SCAN],
    summary="Scan a site",
    status_code=status.HTTP_202_ACCEPTED,
    responses={202: LOCATION, **problems(409)},
)
async def scan_domain(
    body: ScanRequest,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
) -> ScanAccepted:
    """Queue a scan of a site, or join its pending or running scan."""
    address = parse_site_field("#/base_url", body.base_url, context.policy)
    if body.only_document and address.is_site_root:
        refusal = AddressError("With only_document, base_url must be the address of a sitemap.")
        raise FieldRefused(("#/base_url", refusal))
    child_filter = ChildFilter.of(body.sitemaps, body.skip_sitemaps, body.sitemaps_since)
    if body.only_document and child_filter is not None:
        conflict = InputError("only_document cannot be combined with a filter for sitemaps.")
        raise FieldRefused(("#/only_document", conflict))
    async with limits.queue_room.single_scan(identity):
        job, worker_running = await _submit_scan(address, body, child_filter, context, identity)
    context.wake_consumer()
    log.info("job_submitted", job_id=job.job_id, domain=job.domain, deduplicated=job.deduplicated)
    status_url = STATUS_PATH.format(job_id=job.job_id)
    response.headers["Location"] = status_url
    return ScanAccepted(
        job_id=job.job_id,
        status=job.status,
        status_url=status_url,
        created_at=job.created_at,
        deduplicated=job.deduplicated,
        max_urls=job.max_pages,
        max_pages=job.max_pages,
        warning=None if worker_running else NO_WORKER,
    )


@retry_when_busy
async def _submit_scan(
    address: WebAddress,
    body: ScanRequest,
    child_filter: ChildFilter | None,
    context: Context,
    identity: Identity,
) -> tuple[SubmittedJob, bool]:
    submission = build_submission(
        address,
        created_by=identity.user_id,
        max_pages=body.url_limit,
        watch=body.watch,
        document=address.url if body.only_document else None,
        interval_hours=context.settings.scan_interval_hours,
        max_attempts=context.settings.max_attempts,
        child_filter=child_filter,
    )
    if body.watch and not identity.is_admin:
        await _check_right_to_watch(address, identity)
    worker_running = context.knows_live_worker
    if not worker_running:
        async with get_autocommit_session() as session:
            worker_running = await context.has_live_worker(session)
    row = await execute_autocommit(submission.statement, submission.values)
    job = submission.queued(row) or await _join_active_scan(submission, row.domain_id)
    return job, worker_running


async def _check_right_to_watch(address: WebAddress, identity: Identity) -> None:
    async with get_session() as session, session.begin():
        require_right_to_watch(identity, await find_domain(session, address.domain))


async def _join_active_scan(submission: SiteSubmission, domain_id: UUID) -> SubmittedJob:
    async with get_session() as session, session.begin():
        job = await join_active_job(session, submission, domain_id)
        if job.document is not None and job.document != submission.new_job.document:
            raise JobActive(
                "A scan of another document of this site is active. Try again when it has ended."
            )
        return job


@router.get(
    "/status/{job_id}",
    dependencies=[READ],
    summary="Get the status and progress of a scan",
    responses=problems(404),
)
async def get_scan_status(job_id: JobIdent, session: SingleReadSession) -> JobStatusView:
    """The status of a job, by UUID or number."""
    return await find_job(session, job_id)


batches_router = APIRouter(
    prefix="/api/v3/sitemap/batch",
    tags=["scans"],
    route_class=ParsedBodyRoute,
)


@batches_router.post(
    "/create",
    dependencies=[SCAN],
    summary="Scan many sites",
    status_code=status.HTTP_202_ACCEPTED,
    responses={202: LOCATION, **problems(409)},
)
async def create_site_batch(
    body: BatchRequest,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
    session: WriteSession,
) -> BatchCreated:
    """Queue all sites that can be scanned and report the others. Fails only if none can be."""
    entries = _entries(body.domains, context.policy)
    sites = sum(entry.address is not None for entry in entries)
    async with limits.queue_room.turn(identity) as turn, session.begin():
        await turn.reserve(session, sites)
        batch_id = await create_batch(
            session,
            entries,
            created_by=identity.user_id,
            max_pages=body.url_limit,
            max_attempts=context.settings.max_attempts,
        )
        items = await list_batch_items(session, batch_id)
        worker_running = await context.has_live_worker(session)
    context.wake_consumer()
    log.info("batch_submitted", batch_id=batch_id, total=len(items))
    status_url = f"{batches_router.prefix}/status/{batch_id}"
    response.headers["Location"] = status_url
    return BatchCreated(
        batch_id=batch_id,
        status=JobStatus.PENDING,
        total_domains=len(items),
        status_url=status_url,
        items=[BatchItemAnswer(item.domain, item.job_id, item.error_code) for item in items],
        warning=None if worker_running else NO_WORKER,
    )


@batches_router.get(
    "/status/{batch_id}",
    dependencies=[READ],
    summary="Get the status and progress of a batch",
    responses=problems(404),
)
async def get_batch_status(batch_id: UUID, session: ReadSession) -> BatchStatusView:
    """The status of a batch and of each of its sites."""
    return await find_batch(session, batch_id)


def _entries(texts: list[str], policy: EgressPolicy) -> list[BatchEntry]:
    entries: list[BatchEntry] = []
    faults: list[tuple[str, AddressError]] = []
    for text, position in _first_positions(texts).items():
        name = storable(text, MAX_ADDRESS_CHARS)
        try:
            entries.append(BatchEntry(name, parse_allowed_site(text, policy)))
        except AddressError as error:
            faults.append((f"#/domains/{position}", error))
            entries.append(BatchEntry(name, None, error.code, error.message))
    if len(faults) == len(entries):
        raise FieldRefused(*faults, detail="None of the domains can be scanned.")
    return entries


def _first_positions(texts: list[str]) -> dict[str, int]:
    """Each name and where it stands first: the status of a batch has one entry for a name."""
    positions: dict[str, int] = {}
    for position, text in enumerate(texts):
        positions.setdefault(text, position)
    return positions
