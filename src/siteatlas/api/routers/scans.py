"""Submitting one site, and following its scan."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response, status

from siteatlas.access.users import CurrentUser, current_user
from siteatlas.api.addresses import site_at
from siteatlas.api.context import Context
from siteatlas.api.openapi import LOCATION, problems
from siteatlas.api.problems import FieldRefused
from siteatlas.api.schemas.jobs import JobStatusAnswer, ScanAccepted, ScanRequest
from siteatlas.errors import AddressError, JobActive
from siteatlas.insights.jobs import JobView, find_job
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress
from siteatlas.queue.new_job import SubmittedJob
from siteatlas.queue.submission import submit_site
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import get_statement_session

NO_WORKER = "No worker has been seen for a minute. Start one with: siteatlas worker"
NO_DOCUMENT = "With only_document, base_url must be the address of a sitemap."
READS_LESS = "A scan of another document of this site is active. Try again when it has ended."
STATUS_PATH = "/api/v3/sitemap/status/{job_id}"

log = get_logger("api")
router = APIRouter(prefix="/api/v3/sitemap", tags=["scans"], dependencies=[Depends(current_user)])

JobIdent = Annotated[
    str, Path(max_length=64, description="The UUID or the number of a job.", examples=["42"])
]


@router.post(
    "/scan",
    summary="Scan a site",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=ScanAccepted,
    responses={202: LOCATION, **problems(409)},
)
async def scan_domain(
    body: ScanRequest, response: Response, context: Context, user: CurrentUser
) -> ScanAccepted:
    """Queue a scan of the site, or join the one that is waiting or running."""
    address = site_at("#/base_url", body.base_url, context.policy)
    if body.only_document and address.is_site_root:
        raise FieldRefused(("#/base_url", AddressError(NO_DOCUMENT)))
    job, served = await _submit(address, body, context, user)
    context.jobs_waiting()
    log.info("job_submitted", job_id=job.job_id, domain=job.domain, deduplicated=job.deduplicated)
    status_url = STATUS_PATH.format(job_id=job.job_id)
    response.headers["Location"] = status_url
    return ScanAccepted(
        job_id=job.job_id,
        status=job.status,
        status_url=status_url,
        created_at=job.created_at,
        deduplicated=job.deduplicated,
        max_pages=job.max_pages,
        warning=None if served else NO_WORKER,
    )


@retry_when_busy
async def _submit(
    address: WebAddress, body: ScanRequest, context: Context, user: CurrentUser
) -> tuple[SubmittedJob, bool]:
    """The job, and whether anybody is there to run it."""
    async with get_statement_session() as session, session.begin():
        served = await context.is_served(session)
        document = address.url if body.only_document else None
        job = await submit_site(
            session,
            address,
            created_by=user,
            max_pages=body.max_pages,
            watch=body.watch,
            document=document,
            interval_hours=context.settings.scan_interval_hours,
            max_attempts=context.settings.max_attempts,
        )
        if job.document is not None and job.document != document:
            raise JobActive(READS_LESS)
        return job, served


@router.get(
    "/status/{job_id}",
    summary="How far a scan has come",
    response_model=JobStatusAnswer,
    responses=problems(404),
)
async def get_scan_status(job_id: JobIdent) -> JobView:
    """The state of a job, by its UUID or its number."""
    async with get_statement_session() as session, session.begin():
        return await find_job(session, job_id)
