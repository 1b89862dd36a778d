"""Jobs, their attempts, batches and workers, as they are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, cast
from uuid import UUID

from pydantic import Field
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
)
from siteatlas.catalog.views import (
    SITEMAP_COUNT,
    Count,
    Example,
    FreeObject,
    JobStatusWord,
    Line,
    Name,
    Paragraph,
    Seconds,
    Share,
    Shown,
    SitemapTypeWord,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    one_of,
    select_view,
    view_example,
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


Reasons = Annotated[list[Word], declared(maxItems=100)]
_is_uuid = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


@dataclass(frozen=True, slots=True)
class FoundSitemap(View):
    """A document that a scan read, and how many URLs it lists."""

    id: UUID
    url: Url
    type: SitemapTypeWord
    url_count: Count


@dataclass(frozen=True, slots=True)
class SkippedSitemaps(View):
    """How many sitemaps of indexes the filter of a scan left out."""

    by_address: Annotated[Count, Example(12)]
    by_date: Annotated[Count, Example(0)]


@dataclass(frozen=True, slots=True)
class ScanResult(View):
    """What a scan found. While it is running, some of these fields are missing."""

    domain: Annotated[Name | None, Example("example.com")] = None
    max_pages: Annotated[
        Count | None, Example(None), Field(description="The URL limit of this scan, if any.")
    ] = None
    scan_id: Annotated[Count | None, Example(7)] = None
    sitemap_count: Annotated[Count | None, Example(1), Field(description=SITEMAP_COUNT)] = None
    known_sitemap_count: Annotated[
        Count | None,
        Field(description="Number of documents known so far; only while the scan is running."),
    ] = None
    url_count: Annotated[Count | None, Example(12)] = None
    distinct_url_count: Annotated[Count | None, Example(12)] = None
    partial: Annotated[
        bool | None, Example(False), Field(description="Whether the scan is partial.")
    ] = None
    reasons: Annotated[
        Reasons | None,
        Example([]),
        Field(description="Codes of the reasons why the scan is partial."),
    ] = None
    sitemaps: Annotated[
        Annotated[list[FoundSitemap], declared(maxItems=100)] | None,
        Example(
            [
                {
                    "id": Shown.sitemap_id,
                    "url": "https://example.com/sitemap.xml",
                    "type": "standard",
                    "url_count": 12,
                }
            ]
        ),
        Field(description="The largest documents, at most 100."),
    ] = None
    sitemaps_truncated: Annotated[
        bool | None,
        Example(False),
        Field(
            description="Whether `sitemaps` is incomplete; `sitemap_count` counts all documents."
        ),
    ] = None
    skipped_sitemaps: Annotated[
        SkippedSitemaps | None,
        Field(description="What the filter of the scan left out; absent without a filter."),
    ] = None


def _only_scan_result(schema: dict[str, Any]) -> None:
    """The stored object is passed on as it is, and described as the result of a scan."""
    kinds: list[dict[str, Any]] = schema["anyOf"]
    schema["anyOf"] = [kind for kind in kinds if "$ref" in kind or kind.get("type") == "null"]


ResultData = Annotated[
    FreeObject | ScanResult | None,
    Field(union_mode="left_to_right", json_schema_extra=_only_scan_result),
]


@dataclass(frozen=True, slots=True)
class JobStatusView(View):
    """The status of a job."""

    job_id: Annotated[UUID, Example(Shown.job_id)]
    id: Annotated[Count, Example(42)]
    status: Annotated[JobStatusWord, Example("completed")]
    progress: Annotated[Share, Example(1.0)]
    domain: Annotated[Name | None, Example("example.com")]
    domain_id: Annotated[UUID | None, Example(Shown.domain_id)]
    created_by: Annotated[UUID, Example(Shown.user_id)]
    result_data: Annotated[ResultData, Example(view_example(ScanResult))]
    error: Paragraph | None
    error_code: Word | None
    attempt: Annotated[SmallCount, Example(1)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    started_at: Annotated[datetime | None, Example(Shown.noon)]
    finished_at: Annotated[datetime | None, Example(Shown.later)]
    updated_at: Annotated[datetime, Example(Shown.later)]

    @property
    def result(self) -> dict[str, Any]:
        """What it found, which may be little while it runs."""
        return cast("dict[str, Any]", self.result_data or {})


@dataclass(frozen=True, slots=True)
class JobView(JobStatusView):
    """A job with all its fields."""

    job_type: Annotated[Word, Example("sitemap")]
    max_attempts: Annotated[SmallCount, Example(5)]
    priority: Annotated[SmallCount, Example(0)]
    run_at: Annotated[datetime, Example(Shown.noon)]
    worker_id: Name | None
    cancel_requested_at: datetime | None
    shared: Annotated[
        bool,
        Example(False),
        Field(
            description="Whether another user than `created_by` submitted the same site meanwhile."
        ),
    ]
    requested_by: Annotated[list[UUID], Field(exclude=True)]

    requests: Annotated[
        SmallCount,
        Example(1),
        Field(
            description="How many users want the job; 0 if only the schedule does. The "
            "cancellation of the last one ends it."
        ),
    ]

    @property
    def users(self) -> tuple[UUID, ...]:
        """Who wants it; its owner is the first."""
        return (self.created_by, *self.requested_by)


@dataclass(frozen=True, slots=True)
class AttemptView(View):
    """How one attempt ended."""

    attempt: Annotated[SmallCount, Example(1)]
    worker_id: Annotated[Name | None, Example("host-1234")]
    started_at: Annotated[datetime | None, Example(Shown.noon)]
    ended_at: Annotated[datetime, Example(Shown.later)]
    outcome: Annotated[AttemptOutcome, one_of(AttemptOutcome), Example("completed")]
    error_code: Word | None
    error: Paragraph | None


@dataclass(frozen=True, slots=True)
class JobDetailView(JobView):
    """A job with its ended attempts, latest first."""

    attempts: Annotated[
        list[AttemptView], declared(maxItems=100), Example([view_example(AttemptView)])
    ]


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
    users = func.array_append(requested_by, Job.created_by)
    statement = select_view(
        JobView,
        Job,
        domain=named,
        shared=others.exists(),
        requested_by=requested_by,
        requests=func.cardinality(func.array_remove(users, SYSTEM_USER_ID)),
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
class DomainStatusView(View):
    """The status of one site of a batch."""

    status: JobStatusWord
    job_id: UUID | None
    start_time: datetime | None
    end_time: datetime | None
    processing_time: Seconds | None
    error: Paragraph | None
    error_code: Word | None
    partial: Annotated[
        bool | None,
        Field(
            description="Whether the scan is partial; null until the job has ended, and again "
            "after the record of the job has been pruned."
        ),
    ]
    reasons: Annotated[Reasons, Field(description="Codes of the reasons why the scan is partial.")]
    domain: Annotated[str, Field(exclude=True)]
    # 1 when it has ended.
    progress: Annotated[float, Field(exclude=True)]
    updated_at: Annotated[datetime | None, Field(exclude=True)]


@dataclass(frozen=True, slots=True)
class BatchStatusView(View):
    """The status of a batch. Cancelled and rejected sites count as failed."""

    batch_id: Annotated[UUID, Example(Shown.batch_id)]
    status: Annotated[JobStatusWord, Example("completed")]
    total_domains: Annotated[SmallCount, Example(1)]
    completed_domains: Annotated[SmallCount, Example(1)]
    failed_domains: Annotated[SmallCount, Example(0)]
    partial_domains: Annotated[
        SmallCount, Example(1), Field(description="Number of completed sites known to be partial.")
    ]
    progress: Annotated[Share, Example(1.0)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    updated_at: Annotated[datetime, Example(Shown.later)]
    start_time: Annotated[datetime | None, Example(Shown.noon)]
    end_time: Annotated[datetime | None, Example(Shown.later)]
    processing_time: Annotated[Seconds | None, Example(4.0)]
    domain_statuses: Annotated[
        dict[str, DomainStatusView],
        Example(
            {
                "example.com": {
                    "status": "completed",
                    "job_id": Shown.job_id,
                    "start_time": Shown.noon,
                    "end_time": Shown.later,
                    "processing_time": 4.0,
                    "error": None,
                    "error_code": None,
                    "partial": True,
                    "reasons": ["truncated"],
                }
            }
        ),
    ]
    error: Line | None
    metadata: Annotated[FreeObject, Example({"max_pages": None})]


async def find_batch(session: AsyncSession, batch_id: UUID) -> BatchStatusView:
    """The batch with this id and the state of each of its sites."""
    batch = (await session.execute(select(Batch).where(Batch.id == batch_id))).scalar_one_or_none()
    if batch is None:
        raise BatchNotFound
    return _batch_view(batch, await list_batch_items(session, batch_id))


async def list_batch_items(session: AsyncSession, batch_id: UUID) -> list[DomainStatusView]:
    """The sites of a batch in the order of their submission."""
    status = func.coalesce(BatchItem.status, Job.status, JobStatus.FAILED.value)
    running = func.coalesce(Job.progress, 0.0)
    start = func.coalesce(BatchItem.started_at, Job.started_at)
    end = func.coalesce(BatchItem.finished_at, Job.finished_at)
    statement = (
        select_view(
            DomainStatusView,
            BatchItem,
            job_id=BatchItem.job_uuid,
            status=status,
            progress=case((status.in_(FINAL_STATUSES), 1.0), else_=running),
            error_code=func.coalesce(BatchItem.error_code, Job.error_code),
            error=func.coalesce(BatchItem.error, Job.error),
            start_time=start,
            end_time=end,
            processing_time=extract("epoch", end - start).cast(Float),
            updated_at=Job.updated_at,
            partial=Job.result_data["partial"].astext == "true",
            reasons=func.coalesce(Job.result_data["reasons"], literal([], JSONB())),
        )
        .outerjoin(Job, Job.id == BatchItem.job_id)
        .where(BatchItem.batch_id == batch_id)
        .order_by(BatchItem.position)
    )
    return [DomainStatusView(*row) for row in await session.execute(statement)]


def _batch_view(batch: Batch, items: Sequence[DomainStatusView]) -> BatchStatusView:
    statuses = [item.status for item in items]
    start = min((item.start_time for item in items if item.start_time), default=None)
    status = status_of_batch(statuses, started=start is not None)
    completed = statuses.count(JobStatus.COMPLETED)
    failed = statuses.count(JobStatus.FAILED) + statuses.count(JobStatus.CANCELLED)
    end = batch.finished_at or max((item.end_time for item in items if item.end_time), default=None)
    end = end if status in FINAL_STATUSES else None
    touched = [moment for item in items for moment in (item.updated_at, item.end_time) if moment]
    return BatchStatusView(
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
        processing_time=(end - start).total_seconds() if start and end else None,
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
