"""Claims pending jobs, and rescues jobs whose lease has expired.

The statements of a poll are constants: building one takes about as long as running it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Boolean,
    Interval,
    all_,
    and_,
    any_,
    bindparam,
    case,
    false,
    func,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import JobPoison, LeaseLost
from siteatlas.queue.completion import record_attempts
from siteatlas.queue.fair_order import SUSPECT_RESCUES, constant, line_length, picked, waiting
from siteatlas.queue.fence import Claim, claim_of, status_value
from siteatlas.storage.models import SITEMAP_JOB, Domain, Job, JobStatus, Worker

# Deaths without a finished document: when running in isolation, or in total.
POISON_RESCUES = 3
MAX_RESCUES = 6
LEASE_EXPIRED = "lease_expired"
RESCUE_BACKOFF_SECONDS = 5.0
RESCUE_BATCH = 100


@dataclass(frozen=True, slots=True)
class DueWork:
    """Jobs whose lease ran out, whether a suspect is due, and whether any job waits at all."""

    expired: list[int]
    suspects: bool
    jobs: bool


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


def _taking() -> Any:
    """Take waiting jobs; which ones is for the caller to say."""
    return (
        update(Job)
        .values(
            status=JobStatus.PROCESSING,
            fence=Job.fence + 1,
            attempt=Job.attempt + 1,
            worker_id=bindparam("taker"),
            alone=bindparam("by_itself", type_=Boolean()),
            lease_until=func.now() + bindparam("lease", type_=Interval()),
            heartbeat_at=func.now(),
            started_at=func.now(),
            updated_at=func.now(),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


def _claim_of_suspect() -> Any:
    pick = (
        select(Job.id)
        .where(waiting(Job), Job.rescues >= constant(SUSPECT_RESCUES), Job.run_at <= func.now())
        .order_by(Job.priority, Job.id)
        .limit(constant(1))
        .with_for_update(skip_locked=True, key_share=True)
        .scalar_subquery()
    )
    return _taking().where(Job.id == any_(func.array(pick, type_=ARRAY(Job.id.type))))


def _rescue(*, blame: bool, some: bool) -> Any:
    is_death = ~_worker_lives() if blame else false()
    silent = _silent(is_death, some=some)
    cancelled = Job.cancel_requested_at.is_not(None)
    deaths = Job.rescues + case((silent.c.is_death, 1), else_=0)
    poisoned = or_(and_(Job.alone, deaths >= POISON_RESCUES), deaths >= MAX_RESCUES)
    ended = or_(cancelled, poisoned)
    return (
        update(Job)
        .where(Job.id == silent.c.id)
        .values(
            status=case(
                (cancelled, status_value(JobStatus.CANCELLED)),
                (poisoned, status_value(JobStatus.FAILED)),
                else_=status_value(JobStatus.PENDING),
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
        .returning(Job, silent.c.is_death)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


def _silent(is_death: Any, *, some: bool) -> Any:
    """The jobs whose lease ran out, locked with their sites, whose record may have to be changed.

    Others lock a site before its job. A job of a site that is locked waits for the next poll, so
    that nobody waits for a site while holding a job. Arrays, because for a join the planner may
    read all sites.
    """
    expired = and_(
        Job.status == JobStatus.PROCESSING,
        Job.job_type == SITEMAP_JOB,
        Job.lease_until < func.now(),
        Job.id == any_(bindparam("some", type_=ARRAY(Job.id.type))) if some else true(),
    )
    sites = (
        select(Domain.id)
        .where(Domain.id == any_(_array_of(select(Job.domain_id).where(expired), Domain.id)))
        .with_for_update(skip_locked=True, key_share=True)
        .cte("sites")
    )
    free = _array_of(select(sites.c.id), Domain.id)
    return (
        select(Job.id, is_death.label("is_death"))
        .where(expired, or_(Job.domain_id.is_(None), Job.domain_id == any_(free)))
        .order_by(Job.id)
        .limit(RESCUE_BATCH)
        .with_for_update(skip_locked=True, key_share=True, of=Job)
        .cte("silent")
    )


def _array_of(values: Any, column: Any) -> Any:
    return func.array(values.scalar_subquery(), type_=ARRAY(column.type))


def _worker_lives() -> Any:
    return (
        select(Worker.id)
        .where(Worker.id == Job.worker_id, Worker.last_seen_at >= Job.lease_until)
        .correlate(Job)
        .exists()
    )


def _rescue_pause(deaths: Any) -> Any:
    seconds = func.greatest(deaths - 1, 0) * RESCUE_BACKOFF_SECONDS
    return func.make_interval(0, 0, 0, 0, 0, 0, seconds)


DUE_WORK = _due_work()
# By primary key alone: the pick has locked the rows, and asking for their status again would let
# the planner join all waiting rows when its statistics are old.
CLAIM = _taking().where(Job.id == any_(picked()))
CLAIM_SUSPECT = _claim_of_suspect()
RESCUE = {
    (blame, some): _rescue(blame=blame, some=some)
    for blame, some in product((False, True), repeat=2)
}


async def find_due_work(session: AsyncSession, *, ignored: Collection[int] = ()) -> DueWork:
    """Look without taking anything. The leases of `ignored` jobs are not looked at."""
    row = (await session.execute(DUE_WORK, {"ignored": list(ignored)})).one()
    return DueWork(list(row.expired), suspects=row.suspect is not None, jobs=row.job is not None)


async def claim(
    session: AsyncSession,
    worker_id: str,
    limit: int,
    lease_seconds: float,
    *,
    background: int | None = None,
    full_users: Collection[UUID] = (),
) -> list[Claim]:
    """Take up to `limit` waiting jobs whose time has come, most urgent first, users in turn.

    Of jobs that are not interactive only so many are taken that no more than `background` are
    taken in all. `full_users` get nothing. Jobs that may have killed their worker are left to
    `claim_suspect`.
    """
    values = {
        "most": limit,
        "line_length": line_length(limit),
        "most_background": limit if background is None else background,
        "full_users": list(full_users),
        **_taker(worker_id, lease_seconds),
    }
    jobs = (await session.execute(CLAIM, values)).scalars().all()
    return [
        claim_of(job) for job in sorted(jobs, key=lambda job: (job.priority, job.run_at, job.id))
    ]


async def claim_suspect(
    session: AsyncSession, worker_id: str, lease_seconds: float
) -> Claim | None:
    """Take one waiting job that was running at two deaths; it must run alone in its process.

    Only then does its next death show that this job kills the worker, and not another one.
    """
    values = {**_taker(worker_id, lease_seconds), "by_itself": True}
    job = (await session.execute(CLAIM_SUSPECT, values)).scalar_one_or_none()
    return claim_of(job) if job else None


async def claim_one(
    session: AsyncSession, job_id: int, worker_id: str, lease_seconds: float
) -> Claim | None:
    """Take this waiting job, whatever its priority and time; None when it is not waiting."""
    statement = _taking().where(Job.id == job_id, waiting(Job))
    taken = await session.execute(statement, _taker(worker_id, lease_seconds))
    job = taken.scalar_one_or_none()
    return claim_of(job) if job else None


def _taker(worker_id: str, lease_seconds: float) -> dict[str, Any]:
    return {"taker": worker_id, "lease": timedelta(seconds=lease_seconds), "by_itself": False}


async def rescue(
    session: AsyncSession, *, blame: bool = True, only: Collection[int] | None = None
) -> list[Job]:
    """Take back the jobs whose lease ran out, or those of them that are in `only`.

    They wait again at once, with the attempt refunded; after a second death without a finished
    document in between they wait a little and run alone. One that dies alone then fails as
    poison; so does, after more deaths, one that never had the chance. One that was asked to stop
    is cancelled. Without `blame` the death is not the job's: the database itself was away, so
    that nobody could renew a lease. A worker that was seen after the lease had ended lives, and
    blames nobody either. The record of the attempt tells the two apart: only a death that was
    counted may be taken back later.
    """
    statement = RESCUE[blame, only is not None]
    rows = (await session.execute(statement, {"some": list(only or ())})).all()
    for code, counted in ((LEASE_EXPIRED, True), (LeaseLost.code, False)):
        jobs = [row.Job for row in rows if row.is_death is counted]
        await record_attempts(session, jobs, outcome="rescued", error_code=code, refunded=True)
    return [row.Job for row in rows]


async def release_orphans(
    session: AsyncSession, worker_id: str, running: Collection[int]
) -> list[Job]:
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
            status=case(
                (cancelled, status_value(JobStatus.CANCELLED)),
                else_=status_value(JobStatus.PENDING),
            ),
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
