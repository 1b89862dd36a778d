"""What is forgotten, and when: finished jobs, silent workers, the rows of deleted sites.

Each call removes a small portion in one transaction; the caller repeats it while rows come back.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.batches import freeze_items
from siteatlas.storage.bulk import table_of
from siteatlas.storage.models import (
    SITEMAP_JOB,
    Base,
    BatchItem,
    Candidate,
    Domain,
    Job,
    JobStatus,
    Scan,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapUrl,
    Worker,
)

COMPLETED_DAYS = 30
FAILED_DAYS = 90
WORKER_HOURS = 24
JOBS_A_TIME = 1_000
ROWS_A_TIME = 20_000


async def prune_jobs(session: AsyncSession) -> int:
    """Delete finished jobs past their time; their batches keep how they ended."""
    old_completed = and_(
        Job.status == JobStatus.COMPLETED,
        Job.finished_at < func.now() - timedelta(days=COMPLETED_DAYS),
    )
    old_failed = and_(
        Job.status.in_((JobStatus.FAILED, JobStatus.CANCELLED)),
        Job.finished_at < func.now() - timedelta(days=FAILED_DAYS),
    )
    statement = (
        select(Job.id)
        .where(Job.job_type == SITEMAP_JOB, or_(old_completed, old_failed))
        .order_by(Job.id)
        .limit(JOBS_A_TIME)
        .with_for_update(skip_locked=True)
    )
    ids = (await session.execute(statement)).scalars().all()
    if not ids:
        return 0
    await freeze_items(session, BatchItem.job_id.in_(ids))
    await session.execute(delete(Job).where(Job.id.in_(ids)))
    return len(ids)


async def prune_workers(session: AsyncSession) -> int:
    """Forget processes that have not been seen for a day."""
    statement = (
        delete(Worker)
        .where(Worker.last_seen_at < func.now() - timedelta(hours=WORKER_HOURS))
        .returning(Worker.id)
    )
    return len((await session.execute(statement)).all())


async def prune_deleted_domains(session: AsyncSession) -> int:
    """Remove a batch of the rows of one deleted site; the site itself when it has no others.

    The lock leaves each site to one process. A deleted site never comes back: the same host, added
    again, is another site.
    """
    deleted = select(Domain.id).where(Domain.deleted_at.is_not(None)).limit(1)
    statement = deleted.with_for_update(skip_locked=True)
    domain_id = (await session.execute(statement)).scalar()
    if domain_id is None:
        return 0
    for table, belongs in _rows_of(domain_id):
        if removed := await _remove_batch(session, table, belongs):
            return removed
    if detached := await _detach_jobs(session, domain_id):
        return detached
    await session.execute(delete(Domain).where(Domain.id == domain_id))
    return 1


def _rows_of(domain_id: UUID) -> list[tuple[type[Base], ColumnElement[bool]]]:
    """The tables that grow with a site, those that refer to others first."""
    documents = select(Sitemap.id).where(Sitemap.domain_id == domain_id)
    scans = select(Scan.id).where(Scan.domain_id == domain_id)
    return [
        (SitemapUrl, SitemapUrl.sitemap_id.in_(documents)),
        (SitemapScan, SitemapScan.scan_id.in_(scans)),
        (SitemapLink, SitemapLink.parent_id.in_(documents)),
        (Sitemap, Sitemap.domain_id == domain_id),
        (Scan, Scan.domain_id == domain_id),
        (Candidate, Candidate.domain_id == domain_id),
    ]


async def _remove_batch(
    session: AsyncSession, table: type[Base], belongs: ColumnElement[bool]
) -> int:
    rows = table_of(table)
    keys = list(rows.primary_key)
    batch = select(*keys).where(belongs).limit(ROWS_A_TIME).cte("batch")
    removed = await session.execute(
        delete(rows).where(*(key == batch.c[key.name] for key in keys)).returning(keys[0])
    )
    return len(removed.all())


async def _detach_jobs(session: AsyncSession, domain_id: UUID) -> int:
    """Records of jobs outlive their site and keep its name in `result_data`."""
    batch = select(Job.id).where(Job.domain_id == domain_id).limit(JOBS_A_TIME).cte("batch")
    detached = await session.execute(
        update(Job)
        .where(Job.id == batch.c.id)
        .values(domain_id=None)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    )
    return len(detached.all())
