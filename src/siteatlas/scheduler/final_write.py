"""What the queue is told about a job that was stopped from outside while it ran."""

from __future__ import annotations

from siteatlas.errors import ScanStalled
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.processor.publication import record_cancellation, record_failure, return_to_queue
from siteatlas.scheduler.slots import RunningJob, StopReason
from siteatlas.storage.models import JobStatus

log = get_logger("scheduler")

DISPLACED_PAUSE_SECONDS = 60.0


async def write_final_status(job: RunningJob) -> JobStatus | None:
    """Record the end of the attempt by the reason it was stopped for; the status it led to."""
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
