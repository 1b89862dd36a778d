"""What an operator can do: cancel or retry a job, or remove a whole site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    case,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    union,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from siteatlas.catalog.change_feed import announce_deletion
from siteatlas.catalog.domains import delete_domain, find_domain
from siteatlas.catalog.scans import end_scan
from siteatlas.errors import (
    DatabaseInUse,
    DomainNotFound,
    JobActive,
    JobNotFound,
    JobStateConflict,
    NothingHeld,
    NotOwner,
)
from siteatlas.queue.completion import (
    has_follow_up,
    queue_follow_up_if_unpublished,
    without_follow_up,
)
from siteatlas.queue.fence import (
    ACTIVE_STATUSES,
    ALIVE_SECONDS,
    Claim,
    NewJob,
    SubmittedJob,
    is_claim_holder,
    status_value,
)
from siteatlas.queue.submission import create
from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.models import (
    SITEMAP_JOB,
    SYSTEM_USER_ID,
    AttemptOutcome,
    Domain,
    Job,
    JobRequest,
    JobStatus,
    Scan,
    ScanState,
    Worker,
)
from siteatlas.storage.schema import JOB_ATTEMPTS, JOBS


async def cancel(session: AsyncSession, job_id: int, user_id: UUID | None = None) -> str:
    """Cancel a pending job at once; a running one is stopped with the next heartbeat.

    With `user_id`, only the request of that user is withdrawn unless nobody else wants the job.
    """
    is_pending = Job.status == JobStatus.PENDING
    # A running job is ended by its worker; only the end of a job queues its follow-up.
    await _lock_domain(session, Job.id == job_id, is_pending, has_follow_up)
    # A submission that joins a pending job waits for this lock. A running job is not locked: the
    # record of its attempt refers to it, so this would wait for the worker that ends it.
    await session.execute(select(Job.id).where(Job.id == job_id, is_pending).with_for_update())
    if user_id is not None and await _withdraw(session, job_id, user_id):
        return await _load_status(session, job_id)
    statement = (
        update(Job)
        .where(Job.id == job_id, Job.job_type == SITEMAP_JOB, Job.status.in_(ACTIVE_STATUSES))
        .values(
            status=case((is_pending, status_value(JobStatus.CANCELLED)), else_=Job.status),
            finished_at=case((is_pending, func.now()), else_=null()),
            cancel_requested_at=func.coalesce(Job.cancel_requested_at, func.now()),
            updated_at=func.now(),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    job = (await session.execute(statement)).scalar_one_or_none()
    if job is not None and job.status is JobStatus.CANCELLED:
        await end_scan(session, job_id, ScanState.CANCELLED, None)
        await queue_follow_up_if_unpublished(session, job)
    if job is not None:
        return str(job.status)
    current = await _load_status(session, job_id)
    if current == JobStatus.CANCELLED:
        return current
    raise JobStateConflict(f"The job is {current} and can no longer be cancelled.")


async def _withdraw(session: AsyncSession, job_id: int, user_id: UUID) -> bool:
    """Withdraw the request of a user; return whether an active job is still wanted.

    If the job was theirs, it then belongs to, and counts for, the next one who wants it.
    """
    active = select(Job.created_by).where(Job.id == job_id, Job.status.in_(ACTIVE_STATUSES))
    owner = await session.scalar(active.with_for_update(key_share=True))
    others = select(JobRequest.user_id).where(JobRequest.job_id == job_id)
    left = user_id
    if owner == user_id:
        heir = await session.scalar(others.order_by(JobRequest.created_at).limit(1))
        if heir is None:
            return False
        await session.execute(update(Job).where(Job.id == job_id).values(created_by=heir))
        left = heir
    requests = delete(JobRequest).where(JobRequest.job_id == job_id, JobRequest.user_id == left)
    await session.execute(requests)
    return owner is not None


async def remove_domain_and_jobs(
    session: AsyncSession, name: str, user_id: UUID | None = None
) -> None:
    """Delete a site: its waiting job is cancelled, a running one must be stopped first.

    The site is locked before its jobs are looked at, so that none is added meanwhile. The feed
    reports it under a separate number, so the transaction should end with this.
    NotOwner if `user_id` is given and the site, or a scan or job of it, is not theirs alone.
    """
    domain = await find_domain(session, name, lock=True)
    if domain is None:
        raise DomainNotFound
    if user_id is not None:
        await _require_sole_user(session, domain, user_id)
    statement = select(Job.id, Job.status).where(
        Job.domain_id == domain.id, Job.job_type == SITEMAP_JOB, Job.status.in_(ACTIVE_STATUSES)
    )
    jobs = (await session.execute(statement.with_for_update())).all()
    for job in jobs:
        if job.status == JobStatus.PROCESSING:
            raise JobActive("A job of this site is running. Cancel it first.")
    # First, so that its job has no follow-up.
    await delete_domain(session, domain)
    for job in jobs:
        await cancel(session, job.id)
    await announce_deletion(session, domain.id, name)


async def _require_sole_user(session: AsyncSession, domain: Domain, user_id: UUID) -> None:
    if domain.created_by != user_id:
        raise NotOwner
    jobs = select(Job.created_by).where(Job.domain_id == domain.id)
    joined = select(JobRequest.user_id).join(Job).where(Job.domain_id == domain.id)
    scans = select(Scan.created_by).where(Scan.domain_id == domain.id)
    if set(await session.scalars(union(jobs, joined, scans))) - {user_id, SYSTEM_USER_ID}:
        raise NotOwner("Other users scanned this site too. Removing it needs the scope admin.")


async def retry(session: AsyncSession, job_id: int) -> SubmittedJob:
    """Queue a failed or cancelled job again, with all its attempts.

    The job of a deleted site leaves it: the worker registers the site of its address again.
    """
    deleted = await _lock_domain(session, Job.id == job_id)
    statement = (
        update(Job)
        .where(
            Job.id == job_id,
            Job.job_type == SITEMAP_JOB,
            Job.status.in_((JobStatus.FAILED, JobStatus.CANCELLED)),
        )
        .values(**requeued_values(), domain_id=null() if deleted else Job.domain_id)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    try:
        async with session.begin_nested():
            job = (await session.execute(statement)).scalar_one_or_none()
    except IntegrityError as error:
        raise JobActive from error
    if job is not None:
        # Those who had joined it did not ask for it again.
        await session.execute(delete(JobRequest).where(JobRequest.job_id == job_id))
        return SubmittedJob.from_row(job, deduplicated=False)
    current = await _load_status(session, job_id)
    raise JobStateConflict(f"The job is {current}; only failed or cancelled jobs can be retried.")


async def _lock_domain(session: AsyncSession, *job: ColumnElement[bool]) -> bool:
    """Lock the domain of a job that is to be changed; return whether it was deleted."""
    owner = select(Job.domain_id).where(*job).scalar_subquery()
    statement = select(Domain.deleted_at).where(Domain.id == owner)
    lock = statement.with_for_update(read=True, key_share=True)
    return (await session.execute(lock)).scalar() is not None


async def _load_status(session: AsyncSession, job_id: int) -> str:
    named = select(Job.status).where(Job.id == job_id, Job.job_type == SITEMAP_JOB)
    status = (await session.execute(named)).scalar()
    if status is None:
        raise JobNotFound
    return status


def requeued_values() -> dict[str, Any]:
    """The columns of a job that is queued again by hand, as if it had just been submitted.

    Its identity, its owner and its request stay.
    """
    return {
        "status": JobStatus.PENDING,
        "attempt": 0,
        "rescues": 0,
        "snoozes": 0,
        "progress": 0.0,
        "run_at": func.now(),
        "started_at": None,
        "finished_at": None,
        "worker_id": None,
        "cancel_requested_at": None,
        "error": None,
        "error_code": None,
        "result_data": _requeued_request(),
        "job_metadata": without_follow_up(),
        "updated_at": func.now(),
    }


def _requeued_request() -> Any:
    """What a requeued job keeps of `result_data`: the request if it is a sitemap job, else all."""
    request = func.jsonb_build_object(
        "domain", Job.result_data["domain"], "max_pages", Job.result_data["max_pages"]
    )
    return case((Job.job_type == SITEMAP_JOB, request), else_=Job.result_data)


async def refuse_while_workers_run(connection: AsyncConnection) -> None:
    """Raise DatabaseInUse while a worker reports to this database."""
    since = func.clock_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, ALIVE_SECONDS)
    alive = select(Worker.id).where(Worker.slots > 0, Worker.last_seen_at > since)
    if (await connection.execute(alive.limit(1))).first() is not None:
        raise DatabaseInUse


async def requeue_restored_jobs(connection: AsyncConnection) -> None:
    """Requeue running jobs with their attempt refunded; the next one resumes their scans.

    A job whose cancellation was requested is left to the rescuer, which ends it.
    """
    running = (JOBS.c.status == JobStatus.PROCESSING) & (JOBS.c.job_type == SITEMAP_JOB)
    wanted = running & JOBS.c.cancel_requested_at.is_(None)
    ended = select(
        JOBS.c.id,
        JOBS.c.fence,
        JOBS.c.attempt,
        JOBS.c.worker_id,
        JOBS.c.started_at,
        literal(AttemptOutcome.RELEASED.value),
        literal("restored"),
    ).where(wanted)
    names = ["job_id", "fence", "attempt", "worker_id", "started_at", "outcome", "error_code"]
    await connection.execute(insert(JOB_ATTEMPTS).from_select(names, ended))
    # A process that outlived the restore may hold a claim that is newer than the backup.
    await connection.execute(
        update(JOBS)
        .where(wanted)
        .values(
            status=JobStatus.PENDING,
            attempt=func.greatest(JOBS.c.attempt - 1, 0),
            fence=JOBS.c.fence + 1_000,
            run_at=func.now(),
            lease_until=null(),
            updated_at=func.now(),
        )
    )
    await connection.execute(update(JOBS).where(running).values(lease_until=func.now()))


RELEASE = "release_removals"
_is_release_requested = select(
    func.coalesce(JOBS.c.job_metadata[RELEASE].as_boolean(), False)
).where(is_claim_holder)


async def release_removals(
    session: AsyncSession,
    name: str,
    *,
    created_by: UUID,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    check_owner: Callable[[UUID], None] | None = None,
) -> tuple[Domain, SubmittedJob]:
    """Queue a scan of a site that ends its hold, or let the active one do so.

    `check_owner` raises if the site may not be changed. NothingHeld if there is no hold.
    """
    domain = await find_domain(session, name, lock=True)
    if domain is None:
        raise DomainNotFound
    if check_owner is not None:
        check_owner(domain.created_by)
    if domain.removals_held_since is None:
        raise NothingHeld
    new = NewJob(
        domain=domain.domain,
        base_url=domain.base_url,
        created_by=created_by,
        domain_id=domain.id,
        max_pages=domain.max_pages,
        max_attempts=max_attempts,
    )
    job = await create(session, new)
    await _request_release(session, job.id)
    return domain, job


async def _request_release(session: AsyncSession, job_id: int) -> None:
    """Note on a job that its scan ends the hold; it looks there before it decides."""
    noted = func.jsonb_build_object(literal(RELEASE), literal(True), type_=JSONB())
    metadata = func.coalesce(Job.job_metadata, func.jsonb_build_object(), type_=JSONB())
    await session.execute(
        update(Job)
        .where(Job.id == job_id)
        .values(job_metadata=metadata.op("||")(noted))
        .execution_options(synchronize_session=False)
    )


async def is_release_requested(session: AsyncSession, claim: Claim) -> bool:
    """Whether a user wants the scan of this job to end the hold of its site."""
    return bool(await session.scalar(_is_release_requested, claim.fenced))
