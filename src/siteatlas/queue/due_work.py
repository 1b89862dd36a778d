"""What there is to do for a poll, in one statement; an idle process asks for nothing else."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import ARRAY, all_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.fair_order import SUSPECT_RESCUES, constant, waiting
from siteatlas.storage.models import SITEMAP_JOB, Job, JobStatus

RESCUE_BATCH = 100


@dataclass(frozen=True, slots=True)
class DueWork:
    """Jobs whose lease ran out, whether a suspect is due, and whether any job waits at all."""

    expired: list[int]
    suspects: bool
    jobs: bool


async def find_due_work(session: AsyncSession, *, ignored: Collection[int] = ()) -> DueWork:
    """Look without taking anything. The leases of `ignored` jobs are not looked at."""
    row = (await session.execute(_due_work(), {"ignored": list(ignored)})).one()
    return DueWork(list(row.expired), suspects=row.suspect is not None, jobs=row.job is not None)


@cache
def _due_work() -> Any:
    """Scalars with a limit, each through its partial index."""
    expired = (
        select(Job.id)
        .where(
            Job.status == constant(JobStatus.PROCESSING),
            Job.job_type == constant(SITEMAP_JOB),
            Job.lease_until < func.now(),
            Job.id != all_(bindparam("ignored", type_=ARRAY(Job.id.type))),
        )
        .order_by(Job.id)
        .limit(constant(RESCUE_BATCH))
    )
    suspect = (
        select(Job.id)
        .where(waiting(Job), Job.rescues >= constant(SUSPECT_RESCUES), Job.run_at <= func.now())
        .limit(constant(1))
    )
    job = select(Job.id).where(waiting(Job)).order_by(Job.priority, Job.created_by)
    return select(
        func.array(expired.scalar_subquery(), type_=ARRAY(Job.id.type)).label("expired"),
        suspect.scalar_subquery().label("suspect"),
        job.limit(constant(1)).scalar_subquery().label("job"),
    )
