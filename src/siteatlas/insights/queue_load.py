"""How much waits in the queue, for how long, and who is there to work on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Float, extract, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.jobs import count_jobs_by_status
from siteatlas.insights.workers import ALIVE_SECONDS
from siteatlas.queue.submission import Priority
from siteatlas.storage.models import Job, JobStatus, Worker


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """Jobs by status, the age of the oldest one that could run now, and the living workers."""

    jobs: dict[str, int]
    oldest_pending_seconds: float
    workers: int


async def queue_load(session: AsyncSession) -> QueueLoad:
    """The load at this moment, by the clock of the database."""
    return QueueLoad(
        jobs=await count_jobs_by_status(session),
        oldest_pending_seconds=await _oldest_pending_seconds(session),
        workers=await _living_workers(session),
    )


async def _oldest_pending_seconds(session: AsyncSession) -> float:
    """One look into the claim index per priority, however many jobs wait."""
    firsts = union_all(
        *(
            select(func.min(Job.run_at).label("run_at")).where(
                Job.status == JobStatus.PENDING, Job.priority == int(priority)
            )
            for priority in Priority
        )
    ).subquery()
    age = extract("epoch", func.now() - func.min(firsts.c.run_at)).cast(Float)
    seconds = await session.scalar(select(age))
    return max(0.0, float(seconds or 0.0))


async def _living_workers(session: AsyncSession) -> int:
    since = func.now() - timedelta(seconds=ALIVE_SECONDS)
    counted = select(func.count()).select_from(Worker).where(Worker.last_seen_at > since)
    return int(await session.scalar(counted) or 0)
