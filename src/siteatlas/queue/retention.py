"""What is forgotten, and when: finished jobs, silent workers, the rows of deleted sites.

Each call removes a small portion in one transaction; the caller repeats it while rows come back.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.batches import freeze_items
from siteatlas.storage.models import (
    SITEMAP_JOB,
    BatchItem,
    Domain,
    Job,
    JobStatus,
    Sitemap,
    SitemapUrl,
    Worker,
)

COMPLETED_DAYS = 30
FAILED_DAYS = 90
WORKER_HOURS = 24
JOBS_A_TIME = 1_000
URLS_A_TIME = 20_000


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
    """Remove the rows of one deleted site, URLs first, a portion at a time."""
    statement = select(Domain.id).where(Domain.deleted_at.is_not(None)).limit(1)
    domain_id = (await session.execute(statement)).scalar()
    if domain_id is None:
        return 0
    portion = (
        select(SitemapUrl.sitemap_id, SitemapUrl.url_hash)
        .join(Sitemap, Sitemap.id == SitemapUrl.sitemap_id)
        .where(Sitemap.domain_id == domain_id)
        .limit(URLS_A_TIME)
        .cte("portion")
    )
    removed = await session.execute(
        delete(SitemapUrl)
        .where(
            SitemapUrl.sitemap_id == portion.c.sitemap_id,
            SitemapUrl.url_hash == portion.c.url_hash,
        )
        .returning(SitemapUrl.url_hash)
        .execution_options(synchronize_session=False)
    )
    count = len(removed.all())
    if count < URLS_A_TIME:
        await session.execute(
            delete(Domain).where(Domain.id == domain_id, Domain.deleted_at.is_not(None))
        )
    return count + 1
