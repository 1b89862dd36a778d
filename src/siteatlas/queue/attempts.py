"""The record of attempts: one row for each that ended, however it ended."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import insert
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
