"""Displaces parked jobs, and records in the queue why a worker stopped a job."""

from __future__ import annotations

from siteatlas.errors import ScanStalled
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.processor.publication import record_cancellation, record_failure, return_to_queue
from siteatlas.queue.due_jobs import has_due_jobs
from siteatlas.scheduler.slots import RunningJob, Slots, StopReason
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import get_queue_session

log = get_logger("scheduler")

DISPLACED_PAUSE_SECONDS = 60.0


async def displace_parked_jobs(slots: Slots) -> None:
    """Stop the jobs parked longest if no more can be parked and others are due (decision 0022)."""
    jobs = slots.jobs_to_displace()
    if not jobs:
        return
    async with get_queue_session() as session, session.begin():
        if not await has_due_jobs(session, users_at_limit=slots.users_at_limit()):
            return
    for job in jobs:
        job.stop(StopReason.DISPLACED)


async def write_final_status(job: RunningJob) -> JobStatus | None:
    """Record the end of the attempt by the reason it was stopped for. Return the new status."""
    if job.stop_reason is StopReason.CANCELLED:
        await record_cancellation(job.claim)
        meters.jobs_ended[JobStatus.CANCELLED.value] += 1
        return JobStatus.CANCELLED
    if job.stop_reason is StopReason.STALLED:
        error = ScanStalled()
        log.warning("job_stalled", job_id=str(job.claim.job_id), domain=job.claim.domain)
        return await record_failure(
            job.claim, code=error.code, message=error.message, transient=True
        )
    displaced = job.stop_reason is StopReason.DISPLACED
    status = await return_to_queue(
        job.claim,
        pause_seconds=DISPLACED_PAUSE_SECONDS if displaced else 0,
        reason="displaced" if displaced else "released",
    )
    log.info("job_released", job_id=str(job.claim.job_id), domain=job.claim.domain)
    return status
