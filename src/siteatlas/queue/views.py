"""Jobs, their attempts, batches and workers, as they are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Float,
    Interval,
    Select,
    Uuid,
    bindparam,
    case,
    exists,
    extract,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.domains import SCHEDULED, tagged_domains
from siteatlas.catalog.paging import (
    CursorScope,
    Page,
    bigint_key,
    page_size,
    parse_bigint,
    read_page,
    select_view,
)
from siteatlas.errors import BatchNotFound, InputError, JobNotFound
from siteatlas.net.address import parse_site
from siteatlas.queue.fence import (
    ACTIVE_STATUSES,
    ALIVE_SECONDS,
    FINAL_STATUSES,
    is_pending,
    parse_status,
)
from siteatlas.storage.models import (
    SITEMAP_JOB,
    SYSTEM_USER_ID,
    AttemptOutcome,
    Batch,
    BatchItem,
    Domain,
    Job,
    JobAttempt,
    JobRequest,
    JobStatus,
    Worker,
)
from siteatlas.storage.session import Reader


async def seconds_until_due(session: AsyncSession) -> float | None:
    """How long until a watched site is due; zero or less if one is, None without any.

    By the clock of the database, which all processes share.
    """
    remaining = func.extract("epoch", func.min(Domain.next_scan_at) - func.now())
    seconds = (await session.execute(select(remaining).where(*SCHEDULED))).scalar()
    return None if seconds is None else float(seconds)


_is_uuid = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as others see it."""

    job_id: UUID
    id: int
    job_type: str
    status: JobStatus
    progress: float
    domain: str | None
    domain_id: UUID | None
    created_by: UUID
    result_data: dict[str, Any] | None
    error: str | None
    error_code: str | None
    attempt: int
    max_attempts: int
    priority: int
    run_at: datetime
    worker_id: str | None
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    shared: bool
    requested_by: list[UUID]

    @property
    def users(self) -> tuple[UUID, ...]:
        """Who wants it; its owner is the first."""
        return (self.created_by, *self.requested_by)

    @property
    def requests(self) -> int:
        """How many users want it, not counting the schedule."""
        return sum(user != SYSTEM_USER_ID for user in self.users)


@dataclass(frozen=True, slots=True)
class AttemptView:
    """How one attempt at a job ended."""

    attempt: int
    worker_id: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: AttemptOutcome
    error_code: str | None
    error: str | None


def parse_job_ident(text: str) -> int | UUID:
    """Parse the number or UUID by which a reader looks up a job."""
    if _is_uuid(text):
        return UUID(text)
    try:
        return parse_bigint(text)
    except ValueError as error:
        raise InputError("A job is identified by its number or its UUID.") from error


async def find_job(session: Reader, ident: str) -> JobView:
    """The job with this number or UUID."""
    key = parse_job_ident(ident)
    statement = _job_by_uuid if isinstance(key, UUID) else _job_by_number
    row = (await session.execute(statement, {"key": key})).one_or_none()
    if row is None:
        raise JobNotFound
    return JobView(*row)


async def list_jobs(
    session: AsyncSession,
    *,
    status: str | None = None,
    domain: str | None = None,
    tag: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[JobView]:
    """Jobs, newest first; `domain` is what a person types, `status` may be an older word."""
    wanted = parse_status(status) if status is not None else None
    site = parse_site(domain).domain if domain is not None else None
    scope = CursorScope("jobs", (wanted and wanted.value, site, tag))
    before = scope.read(cursor, bigint_key)
    size = page_size(limit)
    statement = _jobs().order_by(Job.id.desc())
    if wanted is not None:
        statement = statement.where(Job.status == wanted)
    if site is not None:
        owner = select(Domain.id).where(Domain.domain == site).scalar_subquery()
        statement = statement.where(Job.domain_id == owner)
    if tag is not None:
        statement = statement.where(Job.domain_id.in_(tagged_domains(tag)))
    if before is not None:
        statement = statement.where(Job.id < before)
    return await read_page(session, statement, size, JobView, lambda row: scope.write(row.id))


async def count_jobs_ahead(session: AsyncSession, job: JobView) -> int:
    """How many pending jobs are due before this one; users in turn may overtake some of them."""
    place = tuple_(Job.priority, Job.run_at, Job.id) < tuple_(job.priority, job.run_at, job.id)
    statement = select(func.count()).where(is_pending(Job), Job.run_at <= func.now(), place)
    return int(await session.scalar(statement) or 0)


async def list_attempts(session: AsyncSession, job_id: int) -> list[AttemptView]:
    """The ended attempts at a job, the latest first."""
    statement = (
        select_view(AttemptView, JobAttempt)
        .where(JobAttempt.job_id == job_id)
        .order_by(JobAttempt.fence.desc())
        .limit(100)
    )
    return [AttemptView(*row) for row in await session.execute(statement)]


async def count_jobs_by_status(session: AsyncSession) -> dict[str, int]:
    """How many jobs are in each state; every state is there."""
    statement = (
        select(Job.status, func.count().label("number"))
        .where(Job.job_type == SITEMAP_JOB)
        .group_by(Job.status)
    )
    counted = {row.status: row.number for row in await session.execute(statement)}
    return {status.value: counted.get(status, 0) for status in JobStatus}


def _jobs() -> Select[*tuple[Any, ...]]:
    """Sitemap jobs with the name of their site, which stays known when the site is deleted."""
    named = func.coalesce(Domain.domain, Job.result_data["domain"].astext)
    kept = (Domain.id == Job.domain_id) & Domain.deleted_at.is_(None)
    others = select(JobRequest.user_id).where(JobRequest.job_id == Job.id).correlate(Job)
    requested_by = func.array(others.scalar_subquery(), type_=ARRAY(Uuid()))
    statement = select_view(
        JobView, Job, domain=named, shared=others.exists(), requested_by=requested_by
    )
    return statement.outerjoin(Domain, kept).where(Job.job_type == SITEMAP_JOB)


# Made once: clients ask for the status of a job more often than for anything else, and making the
# statement takes longer than running it.
_job_by_uuid = _jobs().where(Job.job_id == bindparam("key"))
_job_by_number = _jobs().where(Job.id == bindparam("key"))


_any_alive = select(
    exists().where(
        Worker.last_seen_at > func.clock_timestamp() - bindparam("age", type_=Interval()),
        Worker.slots > 0,
    )
)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One process as it last reported; the age is measured by the database's clock."""

    id: str
    hostname: str
    pid: int
    version: str
    slots: int
    running: int
    started_at: datetime
    last_seen_at: datetime
    last_tick_at: datetime | None
    next_tick_at: datetime | None
    seconds_since_seen: float

    @property
    def alive(self) -> bool:
        """Whether it was seen within the last minute and has not stopped since."""
        return self.slots > 0 and self.seconds_since_seen < ALIVE_SECONDS


async def list_workers(session: AsyncSession) -> list[WorkerView]:
    """The registered processes, those seen last first; also those that stopped."""
    age = extract("epoch", func.clock_timestamp() - Worker.last_seen_at).cast(Float)
    statement = select_view(WorkerView, Worker, seconds_since_seen=func.greatest(0.0, age))
    latest = statement.order_by(Worker.last_seen_at.desc(), Worker.id).limit(1000)
    rows = await session.execute(latest)
    return [WorkerView(*row) for row in rows]


async def any_worker_alive(session: Reader, within_seconds: float = ALIVE_SECONDS) -> bool:
    """Whether a process that works was seen within the last minute."""
    age = timedelta(seconds=within_seconds)
    return bool(await session.scalar(_any_alive, {"age": age}))


@dataclass(frozen=True, slots=True)
class BatchItemView:
    """One site of a batch, in the order of submission; `progress` is 1 when it has ended.

    `partial` and `reasons` come from the job; they are unknown before its end and once its record
    has been pruned.
    """

    domain: str
    job_id: UUID | None
    status: JobStatus
    progress: float
    error_code: str | None
    error: str | None
    start_time: datetime | None
    end_time: datetime | None
    updated_at: datetime | None
    partial: bool | None
    reasons: list[str]

    @property
    def processing_time(self) -> float | None:
        """Seconds from start to end, once there is an end."""
        return _processing_seconds(self.start_time, self.end_time)


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch, counted from its items. Cancelled and refused sites count as failed.

    Partial sites count as completed; `partial_domains` says how many of those they are.
    """

    batch_id: UUID
    status: JobStatus
    total_domains: int
    completed_domains: int
    failed_domains: int
    partial_domains: int
    progress: float
    created_at: datetime
    updated_at: datetime
    start_time: datetime | None
    end_time: datetime | None
    processing_time: float | None
    domain_statuses: dict[str, BatchItemView]
    error: str | None
    metadata: dict[str, Any]


async def find_batch(session: AsyncSession, batch_id: UUID) -> BatchView:
    """The batch with this id and the state of each of its sites."""
    batch = (await session.execute(select(Batch).where(Batch.id == batch_id))).scalar_one_or_none()
    if batch is None:
        raise BatchNotFound
    return _batch_view(batch, await list_batch_items(session, batch_id))


async def list_batch_items(session: AsyncSession, batch_id: UUID) -> list[BatchItemView]:
    """The sites of a batch in the order of their submission."""
    status = func.coalesce(BatchItem.status, Job.status, JobStatus.FAILED.value)
    running = func.coalesce(Job.progress, 0.0)
    statement = (
        select_view(
            BatchItemView,
            BatchItem,
            job_id=BatchItem.job_uuid,
            status=status,
            progress=case((status.in_(FINAL_STATUSES), 1.0), else_=running),
            error_code=func.coalesce(BatchItem.error_code, Job.error_code),
            error=func.coalesce(BatchItem.error, Job.error),
            start_time=func.coalesce(BatchItem.started_at, Job.started_at),
            end_time=func.coalesce(BatchItem.finished_at, Job.finished_at),
            updated_at=Job.updated_at,
            partial=Job.result_data["partial"].astext == "true",
            reasons=func.coalesce(Job.result_data["reasons"], literal([], JSONB())),
        )
        .outerjoin(Job, Job.id == BatchItem.job_id)
        .where(BatchItem.batch_id == batch_id)
        .order_by(BatchItem.position)
    )
    return [BatchItemView(*row) for row in await session.execute(statement)]


def _batch_view(batch: Batch, items: Sequence[BatchItemView]) -> BatchView:
    statuses = [item.status for item in items]
    start = min((item.start_time for item in items if item.start_time), default=None)
    status = status_of_batch(statuses, started=start is not None)
    completed = statuses.count(JobStatus.COMPLETED)
    failed = statuses.count(JobStatus.FAILED) + statuses.count(JobStatus.CANCELLED)
    end = batch.finished_at or max((item.end_time for item in items if item.end_time), default=None)
    end = end if status in FINAL_STATUSES else None
    touched = [moment for item in items for moment in (item.updated_at, item.end_time) if moment]
    return BatchView(
        batch_id=batch.id,
        status=status,
        total_domains=batch.total,
        completed_domains=completed if batch.completed is None else batch.completed,
        failed_domains=failed if batch.failed is None else batch.failed,
        partial_domains=sum(item.partial is True for item in items),
        progress=_mean_progress([item.progress for item in items]),
        created_at=batch.created_at,
        updated_at=max([batch.created_at, *touched]),
        start_time=start,
        end_time=end,
        processing_time=_processing_seconds(start, end),
        domain_statuses={item.domain: item for item in items},
        error="No site of this batch could be scanned." if status == JobStatus.FAILED else None,
        metadata={"max_pages": batch.max_pages},
    )


def status_of_batch(statuses: Sequence[JobStatus], *, started: bool) -> JobStatus:
    """One status for many: a batch that has ended is completed if one of its sites is."""
    if any(status in ACTIVE_STATUSES for status in statuses):
        return JobStatus.PROCESSING if started else JobStatus.PENDING
    for status in (JobStatus.COMPLETED, JobStatus.FAILED):
        if status in statuses:
            return status
    return JobStatus.CANCELLED


def _mean_progress(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def _processing_seconds(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None
