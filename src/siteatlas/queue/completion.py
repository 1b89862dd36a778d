"""Ending an attempt: complete, fail (or try again later), release, cancel while running.

Every end is recorded in `job_attempts`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Update,
    and_,
    any_,
    bindparam,
    case,
    false,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.domains import SCHEDULED
from siteatlas.errors import JobCancelled, LeaseLost
from siteatlas.queue.fence import (
    ACTIVE_STATUSES,
    UNPUBLISHED,
    Claim,
    NewJob,
    Priority,
    is_claim_holder,
    status_value,
)
from siteatlas.queue.submission import create
from siteatlas.storage.models import SYSTEM_USER_ID, Domain, Job, JobAttempt, JobStatus
from siteatlas.storage.schema import DOMAINS, JOB_ATTEMPTS, JOBS

FOLLOW_UP = "follow_up"
has_follow_up = func.coalesce(JOBS.c.job_metadata[FOLLOW_UP].as_boolean(), False)


def _note(*, follow_up: bool) -> Update:
    metadata = func.coalesce(JOBS.c.job_metadata, func.jsonb_build_object(), type_=JSONB())
    noted = func.jsonb_build_object(FOLLOW_UP, follow_up, type_=JSONB())
    return update(JOBS).values(job_metadata=metadata.op("||")(noted))


def _request() -> Update:
    """The statement that notes follow-ups on active jobs, locked in the order of heartbeats."""
    active = (
        select(JOBS.c.id)
        .where(
            JOBS.c.id == any_(bindparam("of_jobs", type_=ARRAY(JOBS.c.id.type))),
            JOBS.c.status.in_(ACTIVE_STATUSES),
        )
        .order_by(JOBS.c.id)
        .with_for_update(key_share=True)
        .cte("active")
    )
    return _note(follow_up=True).where(JOBS.c.id == active.c.id).returning(JOBS.c.id)


_request_follow_ups = _request()
# Each follow-up is queued once: the job may be retried and end again.
_take_follow_up = (
    _note(follow_up=False)
    .where(
        JOBS.c.id == bindparam("of_job"),
        has_follow_up,
        DOMAINS.c.domain == JOBS.c.dedup_key,
        *SCHEDULED,
    )
    .returning(JOBS.c.max_attempts, DOMAINS)
)


async def request_follow_ups(session: AsyncSession, job_ids: Collection[int]) -> set[int]:
    """Have a scheduled scan queued when each of these jobs ends, unless the job counts as one.

    Return the ids of the jobs that have not ended already. To be the last statement of a
    transaction: heartbeats and writes of the jobs wait for it.
    """
    if not job_ids:
        return set()
    return set((await session.scalars(_request_follow_ups, {"of_jobs": list(job_ids)})).all())


def without_follow_up() -> ColumnElement[Any]:
    """SQL expression: the metadata of a job that is queued again by hand, whose site is not due."""
    return JOBS.c.job_metadata.op("-")(FOLLOW_UP)


async def queue_follow_up_if_unpublished(session: AsyncSession, job: Job) -> None:
    """Queue the follow-up of a job, if it has one and has failed or was cancelled."""
    if job.status in UNPUBLISHED and (job.job_metadata or {}).get(FOLLOW_UP):
        await queue_follow_up(session, job.id)


async def queue_follow_up(session: AsyncSession, job_id: int) -> None:
    """Queue the follow-up of a job that has ended, if its site is still watched.

    The row of the site must have been locked before that of the job.
    """
    site = (await session.execute(_take_follow_up, {"of_job": job_id})).one_or_none()
    if site is None:
        return
    new = NewJob(
        domain=site.domain,
        base_url=site.base_url,
        created_by=SYSTEM_USER_ID,
        domain_id=site.id,
        max_pages=site.max_pages,
        priority=Priority.SCHEDULED,
        max_attempts=site.max_attempts,
    )
    await create(session, new)


BACKOFF_JITTER = 0.2
MAX_SNOOZES = 6
POSTPONE_FIRST_SECONDS = 3
POSTPONE_MAX_SECONDS = 600
MAX_POSTPONEMENTS = 24


def _completion(condition: Any) -> Any:
    jobs, attempts = JOBS, JOB_ATTEMPTS
    kept = (jobs.c.fence, jobs.c.attempt, jobs.c.worker_id, jobs.c.started_at)
    ended = (
        update(jobs)
        .where(condition)
        .values(
            status=JobStatus.COMPLETED,
            progress=1.0,
            result_data=bindparam("result", type_=jobs.c.result_data.type),
            error=None,
            error_code=None,
            # The end, not the start of a transaction that may have taken long.
            finished_at=func.clock_timestamp(),
            updated_at=func.clock_timestamp(),
            lease_until=None,
        )
        .returning(jobs.c.id.label("job_id"), *kept, has_follow_up.label("has_follow_up"))
        .cte("ended")
    )
    recorded = (column for column in ended.c if column.name != "has_follow_up")
    record = select(*recorded, literal("completed").label("outcome"))
    names = [column.name for column in record.selected_columns]
    noted = select(ended.c.has_follow_up).scalar_subquery().label("has_follow_up")
    return insert(attempts).from_select(names, record).returning(noted)


# What `Claim.is_narrow` says, but of the job as it is now: a submission that requests the whole
# site removes the document or the filter of a running job, which then reads the whole site next.
_is_narrow = or_(
    JOBS.c.job_metadata["document"].astext.is_not(None),
    JOBS.c.job_metadata["child_filter"].astext.is_not(None),
)
_complete = _completion(is_claim_holder)
_complete_narrow = _completion(is_claim_holder & _is_narrow)


def backoff_seconds(attempt: int, jitter: float) -> float:
    """The delay after the given attempt; `jitter` is between -1 and 1."""
    pause = min(3600, 15 * 4.0 ** (attempt - 1))
    return pause * (1 + BACKOFF_JITTER * jitter)


def postpone_seconds(times_before: int, jitter: float) -> float:
    """The delay of a job that found the database busy; `jitter` is between -1 and 1."""
    pause = min(POSTPONE_MAX_SECONDS, POSTPONE_FIRST_SECONDS * 2.0**times_before)
    return pause * (1 + BACKOFF_JITTER * jitter)


async def complete(
    session: AsyncSession,
    claim: Claim,
    result_data: dict[str, Any],
    *,
    counts_as_scheduled: bool = False,
) -> JobStatus:
    """Complete the job; a late cancellation request is ignored. LeaseLost if not the claim holder.

    A job that read a part of its site while the whole was requested becomes pending again.
    `counts_as_scheduled`: the scheduled scan that waits for the job is not needed any more.
    """
    statement = _complete_narrow if claim.is_narrow else _complete
    values = {**claim.fenced, "result": result_data}
    completed = (await session.execute(statement, values)).first()
    if completed is not None:
        if completed.has_follow_up and not counts_as_scheduled:
            await queue_follow_up(session, claim.id)
        return JobStatus.COMPLETED
    if not claim.is_narrow:
        raise LeaseLost
    return await _continue_with_site(session, claim)


async def _continue_with_site(session: AsyncSession, claim: Claim) -> JobStatus:
    job = await _end(session, claim, _requeue_values(claim))
    await record_attempts(session, [job], outcome="released", error_code="widened", refunded=True)
    return job.status


def _requeue_values(claim: Claim) -> dict[str, Any]:
    return {
        "status": _status_after(claim, JobStatus.PENDING),
        "attempt": func.greatest(Job.attempt - 1, 0),
        "progress": _progress_after(claim),
        "run_at": func.now(),
        "finished_at": case((_cancel_requested(), func.now()), else_=null()),
    }


async def predict_status(session: AsyncSession, claim: Claim, outcome: JobStatus) -> JobStatus:
    """The status that the job will have when its attempt ends this way.

    For rows that must be written before the job itself: its row is locked last and briefly, because
    the heartbeat of all jobs of a process waits for it. If it has a follow-up, its site is
    locked; otherwise nothing is, so that a locked site does not delay the end of a job.
    LeaseLost if not the claim holder.
    """
    site = select(Domain.id).where(Domain.id == JOBS.c.domain_id, has_follow_up)
    lock = site.with_for_update(read=True, key_share=True).scalar_subquery()
    status: JobStatus | None = await session.scalar(
        select(_status_after(claim, outcome), lock).where(is_claim_holder), claim.fenced
    )
    if status is None:
        raise LeaseLost
    return status


def outcome_of_failure(claim: Claim, *, transient: bool) -> JobStatus:
    """Pending after a transient error while attempts are left, else failed."""
    again = transient and claim.attempt < claim.max_attempts
    return JobStatus.PENDING if again else JobStatus.FAILED


async def fail(
    session: AsyncSession, claim: Claim, *, code: str, message: str, transient: bool = False
) -> JobStatus:
    """Record a failed attempt. After a transient error the job is retried while attempts are left.

    An error of one document does not end a job for which the whole site was requested meanwhile.
    """
    outcome = outcome_of_failure(claim, transient=transient)
    clear_error = or_(_cancel_requested(), _widened(claim))
    status = _status_after(claim, outcome)
    values: dict[str, Any] = {
        "status": status,
        "error_code": case((clear_error, null()), else_=code),
        "error": case((clear_error, null()), else_=message),
        "finished_at": case((status == JobStatus.PENDING, null()), else_=func.now()),
        "attempt": case((_widened(claim), func.greatest(Job.attempt - 1, 0)), else_=Job.attempt),
        "progress": _progress_after(claim),
        "run_at": case((_widened(claim), func.now()), else_=_next_run_at(claim, outcome)),
    }
    job = await _end(session, claim, values)
    await record_attempts(
        session,
        [job],
        outcome="retried" if JobStatus.PENDING in (outcome, job.status) else "failed",
        error_code=code,
        error=message,
        refunded=job.attempt < claim.attempt,
    )
    return job.status


def _next_run_at(claim: Claim, outcome: JobStatus) -> Any:
    if outcome is not JobStatus.PENDING:
        return Job.run_at
    pause = backoff_seconds(claim.attempt, random.uniform(-1, 1))
    return func.now() + timedelta(seconds=pause)


async def release(
    session: AsyncSession,
    claim: Claim,
    *,
    pause_seconds: float = 0,
    snooze: bool = False,
    reason: str = "released",
) -> JobStatus:
    """Return the job to the queue with its attempt refunded.

    With `snooze`, because the site asked us to wait; otherwise for a reason outside the job.
    """
    values = _requeue_values(claim) | {"run_at": func.now() + timedelta(seconds=pause_seconds)}
    if snooze:
        values["snoozes"] = Job.snoozes + 1
    job = await _end(session, claim, values)
    outcome = "snoozed" if snooze else "released"
    await record_attempts(session, [job], outcome=outcome, error_code=reason, refunded=True)
    return job.status


async def count_snoozes(session: AsyncSession, claim: Claim) -> int:
    """How often the job was snoozed since a document of it was read."""
    count = await session.scalar(select(JOBS.c.snoozes).where(is_claim_holder), claim.fenced)
    if count is None:
        raise LeaseLost
    return int(count)


async def cancel_running(session: AsyncSession, claim: Claim) -> None:
    """Record that the job was cancelled while it ran."""
    job = await _end(session, claim, {"status": JobStatus.CANCELLED, "finished_at": func.now()})
    await record_attempts(session, [job], outcome="cancelled", error_code=JobCancelled.code)


def _cancel_requested() -> Any:
    return Job.cancel_requested_at.is_not(None)


def _widened(claim: Claim) -> Any:
    return ~_is_narrow if claim.is_narrow else false()


def _status_after(claim: Claim, outcome: JobStatus) -> Any:
    return case(
        (_cancel_requested(), status_value(JobStatus.CANCELLED)),
        (_widened(claim), status_value(JobStatus.PENDING)),
        else_=status_value(outcome),
    )


def _progress_after(claim: Claim) -> Any:
    """Kept for the next attempt, which resumes the scan; 0 if it reads the whole site instead."""
    return case((_widened(claim), 0.0), else_=Job.progress)


async def _end(session: AsyncSession, claim: Claim, values: dict[str, Any]) -> Job:
    statement = (
        update(Job)
        .where(is_claim_holder)
        .values(lease_until=None, updated_at=func.now(), **values)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    job = (await session.execute(statement, claim.fenced)).scalar_one_or_none()
    if job is None:
        raise LeaseLost
    await queue_follow_up_if_unpublished(session, job)
    return job


async def record_attempts(
    session: AsyncSession,
    jobs: Sequence[Job],
    *,
    outcome: str,
    error_code: str | None = None,
    error: str | None = None,
    refunded: bool = False,
) -> None:
    """Record how the current attempt of each job ended; `refunded` if it does not count."""
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
    """How many of the latest attempts, without a break, were released for one of these reasons."""
    released = and_(JobAttempt.outcome == "released", JobAttempt.error_code.in_(reasons))
    of_job = JobAttempt.job_id == job_id
    others = select(func.coalesce(func.max(JobAttempt.fence), 0)).where(of_job, ~released)
    statement = select(func.count()).where(
        of_job, released, JobAttempt.fence > others.scalar_subquery()
    )
    return int(await session.scalar(statement) or 0)
