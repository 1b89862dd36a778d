"""Copies of our statements without their safeguards; the oracle must detect each of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.completion import record_attempts
from siteatlas.queue.fence import Claim
from siteatlas.storage.models import Job, JobStatus


async def claim_without_skip_locked(
    session: AsyncSession, worker_id: str, limit: int, lease_seconds: float
) -> list[Claim]:
    """The claim without row locks and without checking the status again."""
    pick = (
        select(Job.id)
        .where(Job.status == JobStatus.PENDING, Job.run_at <= func.now())
        .order_by(Job.priority, Job.run_at, Job.id)
        .limit(limit)
        .cte("pick")
    )
    statement = (
        update(Job)
        .where(Job.id == pick.c.id)
        .values(
            status=JobStatus.PROCESSING,
            fence=Job.fence + 1,
            attempt=Job.attempt + 1,
            worker_id=worker_id,
            lease_until=func.now() + timedelta(seconds=lease_seconds),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    return [Claim.from_job(job) for job in (await session.execute(statement)).scalars()]


async def write_without_fence(session: AsyncSession, claim: Claim, **_values: Any) -> None:
    """The last statement of a writing transaction, without checking the fence."""
    await session.execute(
        update(Job)
        .where(Job.id == claim.id)
        .values(updated_at=func.now())
        .execution_options(synchronize_session=False)
    )


async def rescue_by_age(session: AsyncSession, *, oldest: float = 60) -> list[Job]:
    """A rescue of all jobs that started long ago, whether or not their workers are alive."""
    statement = (
        update(Job)
        .where(
            Job.status == JobStatus.PROCESSING,
            Job.started_at < func.now() - timedelta(seconds=oldest),
        )
        .values(status=JobStatus.PENDING, lease_until=None, attempt=Job.attempt - 1)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    jobs = list((await session.execute(statement)).scalars())
    await record_attempts(session, jobs, outcome="rescued", refunded=True)
    return jobs
