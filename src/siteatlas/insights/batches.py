"""Reading batches: how far the sites that were submitted together have come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import BatchNotFound
from siteatlas.queue.statuses import FINAL_STATUSES
from siteatlas.storage.models import Batch, BatchItem, Job, JobStatus

NOTHING_SCANNED = "No site of this batch could be scanned."


@dataclass(frozen=True, slots=True)
class BatchItemView:
    """One site of a batch, in the order of submission; `progress` is 1 when it has ended.

    `partial` and `reasons` come from the job; they are unknown before its end and once its record
    has been pruned.
    """

    domain: str
    job_id: UUID | None
    status: str
    progress: float
    error_code: str | None
    error: str | None
    start_time: datetime | None
    end_time: datetime | None
    updated_at: datetime | None
    partial: bool | None
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class DomainStatusView:
    """One site of a batch, as the batch shows it."""

    status: str
    job_id: UUID | None
    start_time: datetime | None
    end_time: datetime | None
    processing_time: float | None
    error: str | None
    error_code: str | None
    partial: bool | None
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch, counted from its items. Cancelled and refused sites count as failed.

    Partial sites count as completed; `partial_domains` says how many of those they are.
    """

    batch_id: UUID
    status: str
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
    domain_statuses: dict[str, DomainStatusView]
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
    statement = (
        select(
            BatchItem.domain,
            BatchItem.job_uuid,
            status.label("status"),
            func.coalesce(Job.progress, 0.0).label("progress"),
            func.coalesce(BatchItem.error_code, Job.error_code).label("error_code"),
            func.coalesce(BatchItem.error, Job.error).label("error"),
            func.coalesce(BatchItem.started_at, Job.started_at).label("started_at"),
            func.coalesce(BatchItem.finished_at, Job.finished_at).label("finished_at"),
            Job.updated_at,
            Job.result_data["partial"].astext.label("partial"),
            Job.result_data["reasons"].label("reasons"),
        )
        .outerjoin(Job, Job.id == BatchItem.job_id)
        .where(BatchItem.batch_id == batch_id)
        .order_by(BatchItem.position)
    )
    return [
        BatchItemView(
            domain=row.domain,
            job_id=row.job_uuid,
            status=row.status,
            progress=1.0 if row.status in FINAL_STATUSES else row.progress,
            error_code=row.error_code,
            error=row.error,
            start_time=row.started_at,
            end_time=row.finished_at,
            updated_at=row.updated_at,
            partial=None if row.partial is None else row.partial == "true",
            reasons=row.reasons or [],
        )
        for row in await session.execute(statement)
    ]


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
        progress=_mean([item.progress for item in items]),
        created_at=batch.created_at,
        updated_at=max([batch.created_at, *touched]),
        start_time=start,
        end_time=end,
        processing_time=_seconds(start, end),
        domain_statuses={item.domain: _domain_status(item) for item in items},
        error=NOTHING_SCANNED if status == JobStatus.FAILED else None,
        metadata={"max_pages": batch.max_pages},
    )


def status_of_batch(statuses: Sequence[str], *, started: bool) -> str:
    """One word for many: a batch that has ended is completed if one of its sites is."""
    if all(status in FINAL_STATUSES for status in statuses):
        for word in (JobStatus.COMPLETED, JobStatus.FAILED):
            if word in statuses:
                return word.value
        return JobStatus.CANCELLED.value
    return JobStatus.PROCESSING.value if started else JobStatus.PENDING.value


def _domain_status(item: BatchItemView) -> DomainStatusView:
    return DomainStatusView(
        status=item.status,
        job_id=item.job_id,
        start_time=item.start_time,
        end_time=item.end_time,
        processing_time=_seconds(item.start_time, item.end_time),
        error=item.error,
        error_code=item.error_code,
        partial=item.partial,
        reasons=item.reasons,
    )


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None
