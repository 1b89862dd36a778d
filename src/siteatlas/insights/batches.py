"""Read statements for batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import case, func, literal, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import BatchNotFound
from siteatlas.insights.views import select_view
from siteatlas.queue.statuses import ACTIVE_STATUSES, FINAL_STATUSES
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
    """A batch with its status, progress and times, computed from its items."""
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
        error=NOTHING_SCANNED if status == JobStatus.FAILED else None,
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
    """The progress of a batch: the mean over its sites, 0 if it has none."""
    return round(sum(values) / len(values), 4) if values else 0.0


def _processing_seconds(start: datetime | None, end: datetime | None) -> float | None:
    """Processing time of a batch or of one of its sites; None until it has ended."""
    return (end - start).total_seconds() if start and end else None
