"""Removing the rows of deleted sites, in small batches."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import (
    Base,
    Candidate,
    Domain,
    FeedEvent,
    Job,
    RobotsFile,
    Scan,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapUrl,
    UrlChange,
)
from siteatlas.storage.statements.bulk import delete_rows

ROWS_PER_BATCH = 20_000
JOBS_PER_BATCH = 1_000


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
    for model, condition in _rows_of(domain_id):
        if removed := await delete_rows(session, model, condition, ROWS_PER_BATCH):
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
        (UrlChange, UrlChange.scan_id.in_(scans)),
        (FeedEvent, FeedEvent.scan_id.in_(scans)),
        (SitemapScan, SitemapScan.scan_id.in_(scans)),
        (SitemapLink, SitemapLink.parent_id.in_(documents)),
        (Sitemap, Sitemap.domain_id == domain_id),
        (Scan, Scan.domain_id == domain_id),
        (Candidate, Candidate.domain_id == domain_id),
        (RobotsFile, RobotsFile.domain_id == domain_id),
    ]


async def _detach_jobs(session: AsyncSession, domain_id: UUID) -> int:
    """Detach the jobs of a deleted site, which outlive it; `result_data` keeps its name."""
    batch = select(Job.id).where(Job.domain_id == domain_id).limit(JOBS_PER_BATCH).cte("batch")
    detached = await session.execute(
        update(Job)
        .where(Job.id == batch.c.id)
        .values(domain_id=None)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    )
    return len(detached.all())
