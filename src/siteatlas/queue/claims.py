"""Taking jobs: the claim of waiting ones, and the rescue of those whose worker fell silent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Interval, and_, bindparam, case, func, null, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import JobPoison
from siteatlas.queue.attempts import record_attempts
from siteatlas.storage.bulk import table_of
from siteatlas.storage.models import SITEMAP_JOB, Job, JobStatus

POISON_RESCUES = 3
RESCUE_BACKOFF_SECONDS = 5.0
RESCUE_BATCH = 100


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a job: valid as long as the job carries this fence."""

    id: int
    job_id: UUID
    fence: int
    attempt: int
    max_attempts: int
    domain: str | None
    domain_id: UUID | None
    base_url: str | None
    document: str | None
    max_pages: int | None
    created_by: UUID
    created_at: datetime
    snoozes: int

    @property
    def fenced(self) -> dict[str, Any]:
        """The values of `STILL_HELD`."""
        return {"of_job": self.id, "of_fence": self.fence}


# The fence as a condition: the job is in the state in which it was claimed.
JOBS = table_of(Job)
STILL_HELD = and_(
    JOBS.c.id == bindparam("of_job"),
    JOBS.c.fence == bindparam("of_fence"),
    JOBS.c.status == JobStatus.PROCESSING,
)


def claim_of(job: Job) -> Claim:
    """The claim on a job that was just taken."""
    data, metadata = job.result_data or {}, job.job_metadata or {}
    return Claim(
        id=job.id,
        job_id=job.job_id,
        fence=job.fence,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        domain=_text(data.get("domain")),
        domain_id=job.domain_id,
        base_url=_text(metadata.get("base_url")) or _text(data.get("domain")),
        document=_text(metadata.get("document")),
        max_pages=data.get("max_pages") if isinstance(data.get("max_pages"), int) else None,
        created_by=job.created_by,
        created_at=job.created_at,
        snoozes=job.snoozes,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


async def claim(
    session: AsyncSession, worker_id: str, limit: int, lease_seconds: float
) -> list[Claim]:
    """Take up to `limit` waiting jobs whose time has come, most urgent first."""
    values = {"most": limit, **_taker(worker_id, lease_seconds)}
    jobs = (await session.execute(_claim_of_many(), values)).scalars().all()
    return [
        claim_of(job) for job in sorted(jobs, key=lambda job: (job.priority, job.run_at, job.id))
    ]


@cache
def _claim_of_many() -> Any:
    """A CTE, because the planner may otherwise run a LIMIT subquery again and take more rows."""
    pick = (
        select(Job.id)
        .where(
            Job.status == JobStatus.PENDING,
            Job.job_type == SITEMAP_JOB,
            Job.run_at <= func.now(),
        )
        .order_by(Job.priority, Job.run_at, Job.id)
        .limit(bindparam("most"))
        .with_for_update(skip_locked=True, key_share=True)
        .cte("pick")
    )
    return _taking().where(Job.id == pick.c.id)


async def claim_one(
    session: AsyncSession, job_id: int, worker_id: str, lease_seconds: float
) -> Claim | None:
    """Take this waiting job, whatever its priority and time; None when it is not waiting."""
    statement = _taking().where(Job.id == job_id)
    taken = await session.execute(statement, _taker(worker_id, lease_seconds))
    job = taken.scalar_one_or_none()
    return claim_of(job) if job else None


def _taking() -> Any:
    """Take waiting jobs; which ones is for the caller to say."""
    return (
        update(Job)
        .where(Job.status == JobStatus.PENDING, Job.job_type == SITEMAP_JOB)
        .values(
            status=JobStatus.PROCESSING,
            fence=Job.fence + 1,
            attempt=Job.attempt + 1,
            worker_id=bindparam("taker"),
            lease_until=func.now() + bindparam("lease", type_=Interval()),
            heartbeat_at=func.now(),
            started_at=func.now(),
            updated_at=func.now(),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


def _taker(worker_id: str, lease_seconds: float) -> dict[str, Any]:
    return {"taker": worker_id, "lease": timedelta(seconds=lease_seconds)}


async def rescue(session: AsyncSession, *, blame: bool = True) -> list[Job]:
    """Take back the jobs whose lease ran out.

    They wait again at once, with the attempt refunded; after a second death without a finished
    document in between they wait a little, after the third they fail as poison. One that was
    asked to stop is cancelled. Without `blame` the death is not the job's: the database itself
    was away, so that nobody could renew a lease.
    """
    jobs: Sequence[Job] = (await session.execute(_rescue(blame=blame))).scalars().all()
    await record_attempts(
        session, jobs, outcome="rescued", error_code="lease_expired", refunded=True
    )
    return list(jobs)


@cache
def _rescue(*, blame: bool) -> Any:
    silent = (
        select(Job.id)
        .where(
            Job.status == JobStatus.PROCESSING,
            Job.job_type == SITEMAP_JOB,
            Job.lease_until < func.now(),
        )
        .order_by(Job.id)
        .limit(RESCUE_BATCH)
        .with_for_update(skip_locked=True, key_share=True)
        .cte("silent")
    )
    cancelled = Job.cancel_requested_at.is_not(None)
    deaths = Job.rescues + (1 if blame else 0)
    poisoned = deaths >= POISON_RESCUES
    ended = or_(cancelled, poisoned)
    return (
        update(Job)
        .where(Job.id == silent.c.id)
        .values(
            status=case(
                (cancelled, JobStatus.CANCELLED.value),
                (poisoned, JobStatus.FAILED.value),
                else_=JobStatus.PENDING.value,
            ),
            rescues=deaths,
            attempt=func.greatest(Job.attempt - 1, 0),
            run_at=func.now() + _rescue_pause(deaths),
            error_code=case((cancelled, null()), (poisoned, JobPoison.code), else_=Job.error_code),
            error=case((cancelled, null()), (poisoned, JobPoison().message), else_=Job.error),
            finished_at=case((ended, func.now()), else_=null()),
            lease_until=null(),
            updated_at=func.now(),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


def _rescue_pause(deaths: Any) -> Any:
    seconds = func.greatest(deaths - 1, 0) * RESCUE_BACKOFF_SECONDS
    return func.make_interval(0, 0, 0, 0, 0, 0, seconds)


async def disown(session: AsyncSession, worker_id: str, running: Collection[int]) -> list[Job]:
    """Give back the jobs that carry this worker's name though it does not run them.

    That happens when the answer to a claim is lost on the way, or a job was left because the
    database was away. Nobody else waits for such a lease to run out.
    """
    cancelled = Job.cancel_requested_at.is_not(None)
    statement = (
        update(Job)
        .where(
            Job.status == JobStatus.PROCESSING,
            Job.job_type == SITEMAP_JOB,
            Job.worker_id == worker_id,
            Job.id.not_in(list(running)),
        )
        .values(
            status=case((cancelled, JobStatus.CANCELLED.value), else_=JobStatus.PENDING.value),
            attempt=func.greatest(Job.attempt - 1, 0),
            run_at=func.now(),
            finished_at=case((cancelled, func.now()), else_=null()),
            lease_until=null(),
            updated_at=func.now(),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    jobs = (await session.execute(statement)).scalars().all()
    await record_attempts(session, jobs, outcome="released", error_code="disowned", refunded=True)
    return list(jobs)
