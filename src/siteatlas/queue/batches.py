"""Batches: many sites submitted together, each with its own or a shared job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.net.address import WebAddress
from siteatlas.queue.new_job import NewJob, Priority, SubmittedJob
from siteatlas.queue.statuses import ACTIVE_STATUSES
from siteatlas.queue.submission import create_many, scan_address
from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.models import Batch, BatchItem, Job, JobStatus
from siteatlas.storage.statements.domains import register_domains

CLOSED_PER_CALL = 50


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One item of a batch as it was typed: an address, or why it is invalid."""

    domain: str
    address: WebAddress | None
    error_code: str | None = None
    error: str | None = None


async def create_batch(
    session: AsyncSession,
    entries: Sequence[BatchEntry],
    *,
    created_by: UUID,
    max_pages: int | None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
) -> UUID:
    """Queue a job for every valid entry and store the others as failed."""
    batch = Batch(total=len(entries), max_pages=max_pages, created_by=created_by)
    session.add(batch)
    await session.flush()
    ids = await _register(session, entries, created_by)
    jobs = await _submit(session, entries, ids, batch, max_attempts)
    await session.execute(
        insert(BatchItem),
        [
            _item(batch.id, n, entry, jobs.get(_batch_entry_domain(entry)))
            for n, entry in enumerate(entries)
        ],
    )
    return batch.id


async def _register(
    session: AsyncSession, entries: Sequence[BatchEntry], created_by: UUID
) -> dict[str, UUID]:
    """Register the domains of a batch; return their ids by domain."""
    addresses = _batch_addresses(entries)
    if not addresses:
        return {}
    return await register_domains(session, list(addresses.values()), created_by=created_by)


def _batch_addresses(entries: Sequence[BatchEntry]) -> dict[str, WebAddress]:
    """The valid addresses of a submitted batch by domain; each domain gets one job."""
    return {entry.address.domain: entry.address for entry in entries if entry.address}


async def _submit(
    session: AsyncSession,
    entries: Sequence[BatchEntry],
    ids: Mapping[str, UUID],
    batch: Batch,
    max_attempts: int,
) -> dict[str, SubmittedJob]:
    """Queue a job for each domain of a batch, or join the active one; return the jobs by domain."""
    jobs = [
        NewJob(
            domain=domain,
            base_url=scan_address(address),
            created_by=batch.created_by,
            domain_id=ids[domain],
            max_pages=batch.max_pages,
            priority=Priority.BATCH,
            max_attempts=max_attempts,
        )
        for domain, address in sorted(_batch_addresses(entries).items())
    ]
    return await create_many(session, jobs) if jobs else {}


def _batch_entry_domain(entry: BatchEntry) -> str:
    """The domain whose job a batch entry gets; empty if its address is invalid."""
    return entry.address.domain if entry.address else ""


def _item(
    batch_id: UUID, position: int, entry: BatchEntry, job: SubmittedJob | None
) -> dict[str, object]:
    """The row of `batch_items` for one entry of a submitted batch."""
    return {
        "batch_id": batch_id,
        "position": position,
        "domain": entry.domain,
        "job_id": job.id if job else None,
        "job_uuid": job.job_id if job else None,
        "status": None if job else JobStatus.FAILED,
        "error_code": entry.error_code,
        "error": entry.error,
    }


async def close_batches(session: AsyncSession) -> int:
    """Freeze the batches whose last item has ended, so that they outlive their jobs."""
    open_item = (
        select(BatchItem.batch_id)
        .join(Job, Job.id == BatchItem.job_id)
        .where(BatchItem.batch_id == Batch.id, Job.status.in_(ACTIVE_STATUSES))
        .exists()
    )
    ended = (
        await session.execute(
            select(Batch)
            .where(Batch.finished_at.is_(None), ~open_item)
            .limit(CLOSED_PER_CALL)
            .with_for_update(skip_locked=True)
        )
    ).scalars()
    count = 0
    for batch in ended:
        await freeze_items(session, BatchItem.batch_id == batch.id)
        await _freeze_counts(session, batch)
        count += 1
    return count


async def freeze_items(session: AsyncSession, which: ColumnElement[bool]) -> None:
    """Copy onto the chosen items how their jobs ended."""
    await session.execute(
        update(BatchItem)
        .where(which, BatchItem.job_id == Job.id)
        .values(
            status=Job.status,
            error_code=Job.error_code,
            error=Job.error,
            started_at=Job.started_at,
            finished_at=Job.finished_at,
        )
        .execution_options(synchronize_session=False)
    )


async def _freeze_counts(session: AsyncSession, batch: Batch) -> None:
    """Store how many jobs of a finished batch completed and failed, and when the last ended."""
    statement = select(
        func.count().filter(BatchItem.status == JobStatus.COMPLETED),
        func.max(BatchItem.finished_at),
    ).where(BatchItem.batch_id == batch.id)
    completed, finished_at = (await session.execute(statement)).one()
    batch.completed, batch.failed = completed, batch.total - completed
    batch.finished_at = finished_at or func.now()
    await session.flush()
