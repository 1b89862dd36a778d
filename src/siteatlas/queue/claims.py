"""Claims pending jobs, and rescues jobs whose lease has expired.

The statements of a poll are constants: building one takes about as long as running it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from itertools import product
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Interval,
    Row,
    Uuid,
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
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from siteatlas.errors import JobCancelled, JobPoison, LeaseLost
from siteatlas.queue.completion import has_follow_up, record_attempts
from siteatlas.queue.fair_order import (
    SUSPECT_RESCUES,
    is_pending,
    line_length,
    pending_lines,
    picked,
    queue_literal,
)
from siteatlas.queue.fence import (
    ACTIVE_STATUSES,
    Claim,
    claim_columns,
    is_claim_holder,
    renew_lease,
    status_value,
)
from siteatlas.queue.submission import joined_documents
from siteatlas.storage.models import SITEMAP_JOB, Domain, Job, JobAttempt, JobStatus, Worker
from siteatlas.storage.schema import JOBS

# `updated_at` is left as it is: it tells whether the job has begun (`claims.has_begun`).
_mark_alone = update(JOBS).where(is_claim_holder).values(alone=true()).returning(JOBS.c.id)
_clear_suspect = update(JOBS).where(is_claim_holder, JOBS.c.alone).values(alone=false(), rescues=0)


async def mark_alone(session: AsyncSession, claim: Claim) -> None:
    """Record that no other job runs in the process. LeaseLost if not the claim holder."""
    if (await session.execute(_mark_alone, claim.fenced)).first() is None:
        raise LeaseLost


async def clear_suspect(session: AsyncSession, claim: Claim) -> None:
    """Forget the deaths of a job that has run alone long enough, before others run beside it."""
    await session.execute(_clear_suspect, claim.fenced)


# Deaths of its worker, without a finished document in between, after which a job fails as poison:
# while it ran in isolation, and otherwise.
POISON_RESCUES = 3
MAX_RESCUES = 6
# Deaths over all attempts after which the next suspicion is enough. Surviving in isolation clears a
# job, so one that kills its workers late would otherwise do so forever.
MAX_DEATHS = 12
LEASE_EXPIRED = "lease_expired"
RESCUE_BATCH = 100


@dataclass(frozen=True, slots=True)
class DueWork:
    """Jobs whose lease has expired, whether a suspect is due, and whether any job is pending."""

    expired: list[int]
    suspects: bool
    jobs: bool


def _poll_statement() -> Any:
    """The statement that polls the queue: scalar subqueries with a limit, each through an index."""
    expired = (
        select(JOBS.c.id)
        .where(
            JOBS.c.status == queue_literal(JobStatus.PROCESSING),
            JOBS.c.job_type == queue_literal(SITEMAP_JOB),
            JOBS.c.lease_until < func.now(),
            JOBS.c.id != all_(bindparam("ignored", type_=ARRAY(JOBS.c.id.type))),
        )
        .order_by(JOBS.c.id)
        .limit(queue_literal(RESCUE_BATCH))
    )
    suspect = (
        select(JOBS.c.id)
        .where(
            is_pending(JOBS.c),
            JOBS.c.rescues >= queue_literal(SUSPECT_RESCUES),
            JOBS.c.run_at <= func.now(),
        )
        .limit(queue_literal(1))
    )
    job = select(JOBS.c.id).where(is_pending(JOBS.c)).order_by(JOBS.c.priority, JOBS.c.created_by)
    return select(
        func.array(expired.scalar_subquery(), type_=ARRAY(JOBS.c.id.type)).label("expired"),
        suspect.scalar_subquery().label("suspect"),
        job.limit(queue_literal(1)).scalar_subquery().label("job"),
    )


def _claim_update() -> Any:
    return (
        update(JOBS)
        .values(
            status=queue_literal(JobStatus.PROCESSING),
            fence=JOBS.c.fence + queue_literal(1),
            attempt=JOBS.c.attempt + queue_literal(1),
            worker_id=bindparam("claiming_worker"),
            alone=false(),
            lease_until=func.now() + bindparam("lease", type_=Interval()),
            heartbeat_at=func.now(),
            started_at=func.now(),
            updated_at=func.now(),
        )
        .returning(*claim_columns)
    )


@cache
def _claim_of_jobs(line_length: int, *, with_reserve: bool) -> Any:
    """The UPDATE that claims jobs in turn; it examines up to `line_length` jobs of each line.

    By primary key alone: the pick has locked the rows, and a second condition on their status
    would let the planner join all pending rows when its statistics are old.
    """
    return _claim_update().where(JOBS.c.id == any_(picked(line_length, with_reserve=with_reserve)))


def _claim_of_suspect() -> Any:
    pick = (
        select(JOBS.c.id)
        .where(
            is_pending(JOBS.c),
            JOBS.c.rescues >= queue_literal(SUSPECT_RESCUES),
            JOBS.c.run_at <= func.now(),
        )
        .order_by(JOBS.c.priority, JOBS.c.id)
        .limit(queue_literal(1))
        .with_for_update(skip_locked=True, key_share=True)
        .scalar_subquery()
    )
    return _claim_update().where(JOBS.c.id == any_(func.array(pick, type_=ARRAY(JOBS.c.id.type))))


def _rescue(*, count_deaths: bool, only_listed: bool) -> Any:
    is_death = has_begun() & ~_worker_is_alive() & ~_was_restarted() if count_deaths else false()
    expired = _expired_jobs(is_death, only_listed=only_listed)
    cancelled = Job.cancel_requested_at.is_not(None)
    deaths = Job.rescues + case((expired.c.is_death, 1), else_=0)
    poisoned = and_(
        expired.c.is_death,
        or_(
            and_(Job.alone, deaths >= POISON_RESCUES),
            and_(deaths >= SUSPECT_RESCUES, expired.c.earlier_deaths >= MAX_DEATHS - 1),
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


def has_begun() -> Any:
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


_find_due_work = _poll_statement()
_claim_suspect = _claim_of_suspect()
_rescue_statements = {
    (count_deaths, only_listed): _rescue(count_deaths=count_deaths, only_listed=only_listed)
    for count_deaths, only_listed in product((False, True), repeat=2)
}


async def find_due_work(session: AsyncSession, *, ignored: Collection[int] = ()) -> DueWork:
    """Look for work without claiming it. Expired leases of `ignored` jobs are left out."""
    row = (await session.execute(_find_due_work, {"ignored": list(ignored)})).one()
    return DueWork(list(row.expired), suspects=row.suspect is not None, jobs=row.job is not None)


async def claim(
    session: AsyncSession,
    worker_id: str,
    limit: int,
    lease_seconds: float,
    *,
    background: int | None = None,
    users_at_limit: Collection[UUID] = (),
) -> list[Claim]:
    """Claim up to `limit` pending jobs that are due, most urgent first, users in turn.

    Jobs that are not interactive are claimed only until the total reaches `background`. Jobs of
    `users_at_limit` are skipped. Jobs that may have killed their worker are left to
    `claim_suspect`.
    """
    values = {
        "max_jobs": limit,
        "users_at_limit": list(users_at_limit),
        **_claim_params(worker_id, lease_seconds),
    }
    with_reserve = background is not None and background < limit
    if with_reserve:
        values["max_with_background"] = background
    statement = _claim_of_jobs(line_length(limit), with_reserve=with_reserve)
    jobs = (await session.execute(statement, values)).all()
    return [
        Claim.from_job(job)
        for job in sorted(jobs, key=lambda job: (job.priority, job.run_at, job.id))
    ]


async def claim_suspect(
    session: AsyncSession, worker_id: str, lease_seconds: float
) -> Claim | None:
    """Claim one suspect: a pending job whose worker died twice. It must run alone in its process.

    Only then does another death show that it was this job that killed the worker: the process
    calls `mark_alone` when the other jobs have ended.
    """
    values = _claim_params(worker_id, lease_seconds)
    job = (await session.execute(_claim_suspect, values)).one_or_none()
    return replace(Claim.from_job(job), is_suspect=True) if job else None


async def claim_one(
    session: AsyncSession, job_id: int, worker_id: str, lease_seconds: float
) -> Claim | None:
    """Claim this pending job, whatever its priority and time; None if it is not pending."""
    statement = _claim_update().where(JOBS.c.id == job_id, is_pending(JOBS.c))
    taken = await session.execute(statement, _claim_params(worker_id, lease_seconds))
    job = taken.one_or_none()
    return Claim.from_job(job) if job else None


def _claim_params(worker_id: str, lease_seconds: float) -> dict[str, Any]:
    lease = timedelta(seconds=lease_seconds)
    return {"claiming_worker": worker_id, "lease": lease}


async def rescue(
    session: AsyncSession, *, count_deaths: bool = True, only: Collection[int] | None = None
) -> list[Job]:
    """Return the jobs whose lease has expired to the queue, or those of them in `only`.

    The attempt is refunded. Each job becomes

    - cancelled, if its cancellation was requested;
    - failed as poison at its `POISON_RESCUES`th death if it ran alone, else at the `MAX_RESCUES`th,
      counted without a finished document in between; and if it becomes a suspect again after
      `MAX_DEATHS` deaths over all attempts;
    - pending otherwise, with a growing delay, and as a suspect after `SUSPECT_RESCUES` deaths.

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


HEARTBEATS_PER_LEASE = 4
# One statement, because every scan begins with both.
_start = renew_lease.returning(joined_documents().label("documents"))


async def report_progress(
    session: AsyncSession,
    claim: Claim,
    *,
    lease_seconds: float,
    progress: float,
    result_data: dict[str, Any] | None = None,
    documents_finished: bool = False,
    documents_read: bool = False,
) -> None:
    """The fence: the last statement of every transaction that writes for a job.

    It renews the lease and moves progress forward, never back. No row means that another worker
    has claimed the job: LeaseLost rolls the whole transaction back. A finished document resets the
    count of rescues, one that was read also that of snoozes.
    """
    values = fence_values(claim, lease_seconds, progress) | {
        "result": result_data,
        "finished": documents_finished,
        "read": documents_read,
    }
    _require_claim((await session.execute(renew_lease, values)).first())


async def report_start(
    session: AsyncSession, claim: Claim, *, lease_seconds: float, progress: float
) -> tuple[str, ...]:
    """The fence of the transaction that opens a scan.

    Returns the documents that submissions have added to recent jobs of the domain.
    """
    values = fence_values(claim, lease_seconds, progress) | {"of_domain": claim.domain_id}
    row = _require_claim((await session.execute(_start, values)).first())
    return distinct_documents(row.documents)


def distinct_documents(lists: Sequence[Sequence[str]] | None) -> tuple[str, ...]:
    """The documents of all lists, each once."""
    return tuple(dict.fromkeys(document for some in lists or () for document in some))


def fence_values(claim: Claim, lease_seconds: float, progress: float) -> dict[str, Any]:
    """The values of `renew_lease` for a transaction that finished no document."""
    # 1.0 is reserved for completed jobs.
    return {
        **claim.fenced,
        "lease": timedelta(seconds=lease_seconds),
        "new_progress": min(progress, 0.99),
        "result": None,
        "finished": False,
        "read": False,
    }


def _require_claim(row: Row[Any] | None) -> Row[Any]:
    """The row; LeaseLost if the claim is no longer held, JobCancelled if that was requested."""
    if row is None:
        raise LeaseLost
    if row.cancel_requested_at is not None:
        raise JobCancelled
    return row


_assign_domain = (
    update(JOBS)
    .where(is_claim_holder)
    .values(domain_id=bindparam("of_domain", type_=JOBS.c.domain_id.type), updated_at=func.now())
    .returning(JOBS.c.id)
)


async def assign_domain(session: AsyncSession, claim: Claim, domain_id: UUID) -> None:
    """Set the domain of a job that was created without one. LeaseLost if not the claim holder."""
    values = {**claim.fenced, "of_domain": domain_id}
    if (await session.execute(_assign_domain, values)).first() is None:
        raise LeaseLost


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


async def heartbeat(
    session: AsyncSession, claims: Iterable[Claim], lease_seconds: float
) -> tuple[set[int], set[int]]:
    """Renew the leases of all jobs of a process in one statement.

    Returns the ids of the jobs still held, and of those whose cancellation was requested.
    """
    held = sorted({(claim.id, claim.fence) for claim in claims})
    if not held:
        return set(), set()
    mine = (
        select(Job.id)
        .where(tuple_(Job.id, Job.fence).in_(held), Job.status == JobStatus.PROCESSING)
        .order_by(Job.id)
        .with_for_update(key_share=True)
        .cte("mine")
    )
    statement = (
        update(Job)
        .where(Job.id == mine.c.id)
        .values(lease_until=func.now() + timedelta(seconds=lease_seconds), heartbeat_at=func.now())
        .returning(Job.id, Job.cancel_requested_at)
        .execution_options(synchronize_session=False)
    )
    rows = (await session.execute(statement)).all()
    return {row.id for row in rows}, {row.id for row in rows if row.cancel_requested_at}


def _due_line() -> Any:
    lines = pending_lines()
    full = bindparam("users_at_limit", type_=ARRAY(Uuid()))
    is_due = lines.c.run_at <= func.now()
    due = select(lines.c.run_at).where(is_due, lines.c.created_by != all_(full))
    return due.limit(queue_literal(1))


_find_due_line = _due_line()


async def has_due_jobs(session: AsyncSession, *, users_at_limit: Collection[UUID] = ()) -> bool:
    """Whether a pending job is due, not counting the jobs of these users."""
    values = {"users_at_limit": list(users_at_limit)}
    return await session.scalar(_find_due_line, values) is not None


_put_back = (
    update(JOBS)
    .where(is_claim_holder)
    .values(
        status=queue_literal(JobStatus.PENDING),
        fence=JOBS.c.fence - queue_literal(1),
        attempt=JOBS.c.attempt - queue_literal(1),
        run_at=func.coalesce(func.now() + bindparam("pause", type_=Interval()), JOBS.c.run_at),
        worker_id=null(),
        lease_until=null(),
        heartbeat_at=null(),
        started_at=null(),
        updated_at=func.now(),
    )
)


async def put_back(session: AsyncSession, pauses: Mapping[Claim, float | None]) -> None:
    """Make these jobs pending again, each due after its pause in seconds; None: as before.

    Only in the transaction that claimed them: a fence that others may have seen never decreases.
    """
    if pauses:
        rows = [
            {**claim.fenced, "pause": None if pause is None else timedelta(seconds=pause)}
            for claim, pause in pauses.items()
        ]
        await session.execute(_put_back, rows)
