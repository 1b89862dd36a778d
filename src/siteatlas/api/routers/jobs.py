"""The queue: list, show, cancel and retry jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Query, Response, status

from siteatlas.access.identity import CurrentIdentity, require_owner
from siteatlas.access.limits import READ, SCAN, CurrentLimits
from siteatlas.api.context import STATUS_PATH, Context, JobIdent, ReadSession, WriteSession
from siteatlas.api.openapi import LOCATION, problems
from siteatlas.api.schemas.jobs import JobsQuery
from siteatlas.catalog.paging import Page
from siteatlas.catalog.views import extended
from siteatlas.logs import get_logger
from siteatlas.processor.processing import recount_site
from siteatlas.queue.operator_actions import cancel, retry
from siteatlas.queue.views import JobDetailView, JobView, find_job, list_attempts, list_jobs
from siteatlas.storage.models import JobStatus

log = get_logger("api")
router = APIRouter(prefix="/api/v3/jobs", tags=["jobs"])


@router.get(
    "",
    dependencies=[READ],
    summary="List jobs",
    responses=problems(),
)
async def get_jobs(query: Annotated[JobsQuery, Query()], session: ReadSession) -> Page[JobView]:
    """Jobs, newest first."""
    return await list_jobs(
        session,
        status=query.status,
        domain=query.domain,
        tag=query.wanted_tag,
        **query.page,
    )


@router.get(
    "/{job_id}",
    dependencies=[READ],
    summary="Show a job",
    responses=problems(404),
)
async def get_job(job_id: JobIdent, session: ReadSession) -> JobDetailView:
    """A job and its finished attempts."""
    job = await find_job(session, job_id)
    return extended(JobDetailView, job, attempts=await list_attempts(session, job.id))


@router.post(
    "/{job_id}/cancel",
    dependencies=[SCAN],
    summary="Cancel a job",
    responses=problems(404, 409),
)
async def cancel_job(
    job_id: JobIdent, afterwards: BackgroundTasks, identity: CurrentIdentity, session: WriteSession
) -> JobView:
    """Cancel a pending job immediately, or ask a running job to stop. Can safely be repeated.

    If other users submitted the site too, only the request of this user is withdrawn: `requests`
    says how many remain. With the scope `admin` the job is cancelled for all.
    """
    async with session.begin():
        job = await find_job(session, job_id)
        require_owner(identity, *job.users)
        await cancel(session, job.id, identity.limited_to_user)
        job = await find_job(session, job_id)
    if job.status == JobStatus.CANCELLED:
        afterwards.add_task(recount_site, job.id)
    log.info("job_cancel_requested", job_id=job.job_id, domain=job.domain, status=job.status)
    return job


@router.post(
    "/{job_id}/retry",
    dependencies=[SCAN],
    summary="Retry a job",
    status_code=status.HTTP_202_ACCEPTED,
    responses={202: LOCATION, **problems(404, 409)},
)
async def retry_job(
    job_id: JobIdent,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
    session: WriteSession,
) -> JobView:
    """Queue a failed or cancelled job again."""
    async with limits.queue_room.turn(identity) as turn, session.begin():
        job = await find_job(session, job_id)
        require_owner(identity, job.created_by)
        await turn.reserve(session, owner=job.created_by)
        await retry(session, job.id)
        job = await find_job(session, job_id)
    context.wake_consumer()
    log.info("job_retried", job_id=job.job_id, domain=job.domain)
    response.headers["Location"] = STATUS_PATH.format(job_id=job.job_id)
    return job
