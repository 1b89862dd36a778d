"""The record of attempts: one row for each that ended, however it ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import and_, func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import Job, JobAttempt


async def record_attempts(
    session: AsyncSession,
    jobs: Sequence[Job],
    *,
    outcome: str,
    error_code: str | None = None,
    error: str | None = None,
    refunded: bool = False,
) -> None:
    """Note how the current attempt of each job ended; `refunded` when it no longer counts."""
    if not jobs:
        return
    rows = [
        {
            "job_id": job.id,
            "fence": job.fence,
            "attempt": job.attempt + (1 if refunded else 0),
            "worker_id": job.worker_id,
            "started_at": job.started_at,
            "outcome": outcome,
            "error_code": error_code,
            "error": error,
        }
        for job in jobs
    ]
    await session.execute(insert(JobAttempt), rows)


async def count_releases(session: AsyncSession, job_id: int, reasons: Collection[str]) -> int:
    """How many times in a row, up to now, the job was given back for one of these reasons."""
    given_back = and_(JobAttempt.outcome == "released", JobAttempt.error_code.in_(reasons))
    of_job = JobAttempt.job_id == job_id
    others = select(func.coalesce(func.max(JobAttempt.fence), 0)).where(of_job, ~given_back)
    statement = select(func.count()).where(
        of_job, given_back, JobAttempt.fence > others.scalar_subquery()
    )
    return int(await session.scalar(statement) or 0)
