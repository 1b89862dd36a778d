"""Rescue: jobs whose lease has expired return to the queue, and those that kill workers stop.

A rescue counts as a death of the worker unless something else explains it. After two deaths a job
runs alone; if its worker then dies again, the job fails as poison.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from itertools import product
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
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
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from siteatlas.errors import JobPoison, LeaseLost
from siteatlas.queue.claims import DEATHS_BEFORE_ALONE, RESCUE_BATCH
from siteatlas.queue.completion import has_follow_up, record_attempts
from siteatlas.queue.fence import ACTIVE_STATUSES, Claim, is_claim_holder, status_value
from siteatlas.storage.models import SITEMAP_JOB, Domain, Job, JobAttempt, JobStatus, Worker
from siteatlas.storage.schema import JOBS

# Deaths of its worker, without a finished document in between, after which a job fails as poison:
# while it ran alone, and otherwise.
POISON_RESCUES = 3
MAX_RESCUES = 6
# Deaths over all attempts after which it fails as soon as it has to run alone again. Surviving
# alone clears a job, so one that kills its workers late would otherwise do so forever.
MAX_DEATHS = 12
LEASE_EXPIRED = "lease_expired"


def _rescue(*, count_deaths: bool, only_listed: bool) -> Any:
    is_death = _has_begun() & ~_worker_is_alive() & ~_was_restarted() if count_deaths else false()
    expired = _expired_jobs(is_death, only_listed=only_listed)
    cancelled = Job.cancel_requested_at.is_not(None)
    deaths = Job.rescues + case((expired.c.is_death, 1), else_=0)
    poisoned = and_(
        expired.c.is_death,
        or_(
            and_(Job.alone, deaths >= POISON_RESCUES),
            and_(deaths >= DEATHS_BEFORE_ALONE, expired.c.earlier_deaths >= MAX_DEATHS - 1),
            deaths >= MAX_RESCUES,
        ),
    )
    ended = or_(cancelled, poisoned)
    return (
        update(Job)
        .where(Job.id == expired.c.id)
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
        .returning(Job, expired.c.is_death)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


def _expired_jobs(is_death: Any, *, only_listed: bool) -> Any:
    """The jobs whose lease has expired, locked together with their domains.

    The lock order is domain, then job: jobs whose domain is locked are left for the next poll.
    Arrays instead of a join, for which the planner may scan all domains.
    """
    expired = and_(
        Job.status == JobStatus.PROCESSING,
        Job.job_type == SITEMAP_JOB,
        Job.lease_until < func.now(),
        Job.id == any_(bindparam("only", type_=ARRAY(Job.id.type))) if only_listed else true(),
    )
    sites = (
        select(Domain.id)
        .where(Domain.id == any_(_rescue_array(select(Job.domain_id).where(expired), Domain.id)))
        .with_for_update(skip_locked=True, key_share=True)
        .cte("sites")
    )
    free = _rescue_array(select(sites.c.id), Domain.id)
    earlier_deaths = _attempts(JobAttempt.error_code == LEASE_EXPIRED)
    return (
        select(Job.id, is_death.label("is_death"), earlier_deaths.label("earlier_deaths"))
        .where(expired, or_(Job.domain_id.is_(None), Job.domain_id == any_(free)))
        .order_by(Job.id)
        .limit(RESCUE_BATCH)
        .with_for_update(skip_locked=True, key_share=True, of=Job)
        .cte("expired_jobs")
    )


def _attempts(condition: ColumnElement[bool]) -> Any:
    return (
        select(func.count())
        .where(JobAttempt.job_id == Job.id, condition)
        .correlate(Job)
        .scalar_subquery()
    )


def _rescue_array(rows: Any, column: Any) -> Any:
    return func.array(rows.scalar_subquery(), type_=ARRAY(column.type))


def _has_begun() -> Any:
    """SQL condition: the job has written something since its claim.

    Opening the scan is its first write, before any request. Heartbeats leave `updated_at` as it is.
    """
    return Job.updated_at.is_distinct_from(Job.started_at)


def _worker_is_alive() -> Any:
    """SQL condition: the worker of the job was seen after the lease of the job expired."""
    return (
        select(Worker.id)
        .where(Worker.id == Job.worker_id, Worker.last_seen_at >= Job.lease_until)
        .correlate(Job)
        .exists()
    )


def _was_restarted() -> Any:
    """SQL condition: PostgreSQL, or the machine of the worker, was started after the claim.

    Then the job did not kill its worker; unless it kills the container in which both run, so the
    excuse ends after as many rescues as there may be deaths.
    """
    worker, later = aliased(Worker), aliased(Worker)
    machine = (
        select(later.id)
        .join(worker, worker.hostname == later.hostname)
        .where(
            worker.id == Job.worker_id,
            worker.boot_id != later.boot_id,
            later.started_at > Job.started_at,
        )
        .correlate(Job)
        .exists()
    )
    rescues = _attempts(JobAttempt.outcome == "rescued")
    return or_(func.pg_postmaster_start_time() > Job.started_at, machine) & (rescues < MAX_DEATHS)


def _rescue_pause(deaths: Any) -> Any:
    seconds = func.greatest(deaths - 1, 0) * 5.0
    return func.make_interval(0, 0, 0, 0, 0, 0, seconds)


_rescue_statements = {
    (count_deaths, only_listed): _rescue(count_deaths=count_deaths, only_listed=only_listed)
    for count_deaths, only_listed in product((False, True), repeat=2)
}


async def rescue(
    session: AsyncSession, *, count_deaths: bool = True, only: Collection[int] | None = None
) -> list[Job]:
    """Return the jobs whose lease has expired to the queue, or those of them in `only`.

    The attempt is refunded. Each job becomes

    - cancelled, if its cancellation was requested;
    - failed as poison at its `POISON_RESCUES`th death if it ran alone, else at the `MAX_RESCUES`th,
      counted without a finished document in between; and if it has to run alone again after
      `MAX_DEATHS` deaths over all attempts;
    - pending otherwise, with a growing delay; after `DEATHS_BEFORE_ALONE` deaths it runs alone.

    A death is counted unless the job had not begun, the worker was seen after the lease had
    expired, or PostgreSQL or the machine of the worker was restarted. `count_deaths=False` counts
    none: the database was unavailable, so no worker could renew a lease. The record of the attempt
    distinguishes the two: only a counted death can be forgiven later.
    """
    statement = _rescue_statements[count_deaths, only is not None]
    rows = (await session.execute(statement, {"only": list(only or ())})).all()
    for code, counted in ((LEASE_EXPIRED, True), (LeaseLost.code, False)):
        jobs = [row.Job for row in rows if row.is_death is counted]
        await record_attempts(session, jobs, outcome="rescued", error_code=code, refunded=True)
    return [row.Job for row in rows]


async def release_orphans(
    session: AsyncSession, worker_id: str, running: Collection[int]
) -> list[Job]:
    """Release the jobs that are assigned to this worker but do not run in it.

    That happens when the response to a claim was lost, or when the end of a job could not be
    written. Their leases need not expire first, but there is a pause: an end that can never be
    written must not keep the job running in a loop.
    """
    orphaned = and_(
        Job.status == JobStatus.PROCESSING,
        Job.job_type == SITEMAP_JOB,
        Job.worker_id == worker_id,
        Job.id.not_in(list(running)),
    )
    await _lock_domains(session, and_(orphaned, has_follow_up))
    cancelled = Job.cancel_requested_at.is_not(None)
    statement = (
        update(Job)
        .where(orphaned)
        .values(
            status=case(
                (cancelled, status_value(JobStatus.CANCELLED)),
                else_=status_value(JobStatus.PENDING),
            ),
            attempt=func.greatest(Job.attempt - 1, 0),
            run_at=func.now() + timedelta(seconds=5.0),
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


async def _lock_domains(session: AsyncSession, jobs: ColumnElement[bool]) -> None:
    domains = _rescue_array(select(Job.domain_id).where(jobs), Domain.id)
    lock = select(Domain.id).where(Domain.id == any_(domains)).order_by(Domain.id)
    await session.execute(lock.with_for_update(read=True, key_share=True))


async def forgive_rescues(session: AsyncSession, claims: Iterable[Claim]) -> None:
    """Do not count the rescue of jobs whose worker is alive as a death.

    The record of the attempt is changed too, so this is idempotent. A rescue that was not counted
    is left as it is: earlier deaths stay counted.
    """
    lost = sorted({(claim.id, claim.fence) for claim in claims})
    if not lost:
        return
    forgiven = (
        update(JobAttempt)
        .where(
            tuple_(JobAttempt.job_id, JobAttempt.fence).in_(lost),
            JobAttempt.error_code == LEASE_EXPIRED,
        )
        .values(error_code=LeaseLost.code)
        .returning(JobAttempt.job_id)
        .cte("forgiven")
    )
    await session.execute(
        update(Job)
        .where(Job.id == forgiven.c.job_id, Job.status.in_(ACTIVE_STATUSES), Job.rescues > 0)
        .values(rescues=Job.rescues - 1)
        .execution_options(synchronize_session=False)
    )


# `updated_at` is left as it is: it tells whether the job has begun (`_has_begun`).
_mark_alone = update(JOBS).where(is_claim_holder).values(alone=true()).returning(JOBS.c.id)
_clear_deaths = update(JOBS).where(is_claim_holder, JOBS.c.alone).values(alone=false(), rescues=0)


async def mark_alone(session: AsyncSession, claim: Claim) -> None:
    """Record that no other job runs in the process. LeaseLost if not the claim holder."""
    if (await session.execute(_mark_alone, claim.fenced)).first() is None:
        raise LeaseLost


async def clear_deaths(session: AsyncSession, claim: Claim) -> None:
    """Forget the deaths of a job that has run alone long enough, before others run beside it."""
    await session.execute(_clear_deaths, claim.fenced)
