"""Jobs of a restored backup: those that were running when it was written go back to the queue."""

from __future__ import annotations

from sqlalchemy import func, insert, literal, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from siteatlas.errors import DatabaseInUse
from siteatlas.queue.workers import ALIVE_SECONDS
from siteatlas.storage.models import SITEMAP_JOB, AttemptOutcome, JobStatus, Worker
from siteatlas.storage.tables import JOB_ATTEMPTS, JOBS

RESTORED = "restored"
# A process that outlived the restore may hold a claim that is newer than the backup.
FENCE_STEP = 1_000
SEEN_WITHIN = func.make_interval(0, 0, 0, 0, 0, 0, ALIVE_SECONDS)


async def refuse_while_workers_run(connection: AsyncConnection) -> None:
    """Raise DatabaseInUse while a worker reports to this database."""
    alive = select(Worker.id).where(
        Worker.slots > 0, Worker.last_seen_at > func.clock_timestamp() - SEEN_WITHIN
    )
    if (await connection.execute(alive.limit(1))).first() is not None:
        raise DatabaseInUse


async def requeue_restored_jobs(connection: AsyncConnection) -> None:
    """Requeue running jobs with their attempt refunded; the next one resumes their scans.

    A job whose cancellation was requested is left to the rescuer, which ends it.
    """
    running = (JOBS.c.status == JobStatus.PROCESSING) & (JOBS.c.job_type == SITEMAP_JOB)
    wanted = running & JOBS.c.cancel_requested_at.is_(None)
    ended = select(
        JOBS.c.id,
        JOBS.c.fence,
        JOBS.c.attempt,
        JOBS.c.worker_id,
        JOBS.c.started_at,
        literal(AttemptOutcome.RELEASED.value),
        literal(RESTORED),
    ).where(wanted)
    names = ["job_id", "fence", "attempt", "worker_id", "started_at", "outcome", "error_code"]
    await connection.execute(insert(JOB_ATTEMPTS).from_select(names, ended))
    await connection.execute(
        update(JOBS)
        .where(wanted)
        .values(
            status=JobStatus.PENDING,
            attempt=func.greatest(JOBS.c.attempt - 1, 0),
            fence=JOBS.c.fence + FENCE_STEP,
            run_at=func.now(),
            lease_until=null(),
            updated_at=func.now(),
        )
    )
    await connection.execute(update(JOBS).where(running).values(lease_until=func.now()))
