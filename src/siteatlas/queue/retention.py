"""What is forgotten, and when: ended jobs with their scans, batches, workers, deleted sites.

Each call removes a small portion in one transaction; the caller repeats it while rows come back.
What is due is found by an index of its own: a call with nothing to do reads next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Self
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from siteatlas.queue.batches import freeze_items
from siteatlas.queue.statuses import ACTIVE_STATUSES
from siteatlas.settings import Settings
from siteatlas.storage.models import (
    SITEMAP_JOB,
    Base,
    Batch,
    BatchItem,
    Candidate,
    Domain,
    Job,
    JobStatus,
    Scan,
    ScanState,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapStatus,
    SitemapUrl,
    Worker,
)
from siteatlas.storage.statements.bulk import table_of

WORKER_HOURS = 24
JOBS_PER_BATCH = 1_000
SCANS_PER_BATCH = 1_000
BATCHES_PER_BATCH = 20
ROWS_PER_BATCH = 20_000
DOCUMENTS_PER_BATCH = 5_000
# A listed document is younger than this while its scan runs, or the scan has an active job.
NEVER_ASKED_HOURS = 1


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days records are kept after their end, and how many scans of a site in any case."""

    completed_job_days: float = 30
    failed_job_days: float = 90
    batch_days: float = 90
    scans: int = 10

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The retention that the operator chose."""
        return cls(
            completed_job_days=settings.keep_completed_jobs_days,
            failed_job_days=settings.keep_failed_jobs_days,
            batch_days=settings.keep_batches_days,
            scans=settings.keep_scans,
        )

    def days_of(self, status: JobStatus) -> float:
        """How long a job with this final status is kept."""
        completed = status is JobStatus.COMPLETED
        return self.completed_job_days if completed else self.failed_job_days


async def prune_jobs(session: AsyncSession, keep: Retention = Retention()) -> int:
    """Delete ended jobs past their time, and the scans of their sites that are not kept longer.

    What each scan did with each document goes first, however many transactions that takes.
    Batches keep how their jobs ended.
    """
    ids = await _expired_jobs(session, keep)
    if not ids:
        return 0
    scans = (await session.scalars(_surplus_scans(ids, keep.scans))).all()
    if removed := await _remove_batch(session, SitemapScan, SitemapScan.scan_id.in_(scans)):
        return removed
    # A retried job may have restarted one of them since.
    await session.execute(delete(Scan).where(Scan.id.in_(scans), Scan.state != ScanState.RUNNING))
    if len(scans) == SCANS_PER_BATCH:
        return len(scans)
    await freeze_items(session, BatchItem.job_id.in_(ids))
    await session.execute(delete(Job).where(Job.id.in_(ids)))
    return len(ids) + len(scans)


async def _expired_jobs(session: AsyncSession, keep: Retention) -> list[int]:
    """One look into the index for each final status: together they would read the table."""
    ids: list[int] = []
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        statement = (
            select(Job.id)
            .where(
                Job.job_type == SITEMAP_JOB,
                Job.status == status,
                Job.finished_at < func.now() - timedelta(days=keep.days_of(status)),
            )
            .order_by(Job.finished_at)
            .limit(JOBS_PER_BATCH - len(ids))
            .with_for_update(skip_locked=True)
        )
        ids += (await session.scalars(statement)).all()
    return ids


def _surplus_scans(job_ids: Sequence[int], kept: int) -> Select[int]:
    """Scans up to those of these jobs, but for the newest of each site."""
    newer = aliased(Scan)
    sites = (
        select(Scan.domain_id, func.max(Scan.id).label("last_id"))
        .where(Scan.job_id.in_(job_ids))
        .group_by(Scan.domain_id)
        .cte("sites")
    )
    oldest_kept = (
        select(newer.id)
        .where(newer.domain_id == sites.c.domain_id)
        .order_by(newer.id.desc())
        .offset(kept - 1)
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(Scan.id)
        .join(sites, Scan.domain_id == sites.c.domain_id)
        .where(Scan.id <= sites.c.last_id, Scan.id < oldest_kept, Scan.state != ScanState.RUNNING)
        .limit(SCANS_PER_BATCH)
    )


async def prune_batches(session: AsyncSession, keep: Retention = Retention()) -> int:
    """Delete batches that ended long ago, with their items."""
    due = (
        select(Batch.id)
        .where(Batch.finished_at < func.now() - timedelta(days=keep.batch_days))
        .order_by(Batch.finished_at)
        .limit(BATCHES_PER_BATCH)
        .with_for_update(skip_locked=True)
        .cte("due")
    )
    statement = delete(Batch).where(Batch.id == due.c.id).returning(Batch.id)
    return len((await session.execute(statement)).all())


async def prune_never_asked(session: AsyncSession) -> int:
    """Remove listed documents of one site that no scan ever asked for, and none will.

    A scan removes its own when it ends; these are what an older version or a crash left. The lock
    keeps jobs of this site from being submitted meanwhile.
    """
    never_asked = and_(
        Sitemap.status == SitemapStatus.PENDING,
        Sitemap.type.is_(None),
        Sitemap.created_at < func.now() - timedelta(hours=NEVER_ASKED_HOURS),
    )
    active = exists().where(Job.domain_id == Sitemap.domain_id, Job.status.in_(ACTIVE_STATUSES))
    site = select(Sitemap.domain_id).where(never_asked, ~active).limit(1)
    domain_id = (await session.execute(site)).scalar()
    if domain_id is None:
        return 0
    idle = select(Domain.id).where(Domain.id == domain_id).with_for_update(skip_locked=True)
    if (await session.execute(idle)).scalar() is None:
        return 0
    belongs = and_(Sitemap.domain_id == domain_id, never_asked, ~active)
    return await _remove_batch(session, Sitemap, belongs, DOCUMENTS_PER_BATCH)


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
    session: AsyncSession,
    table: type[Base],
    belongs: ColumnElement[bool],
    most: int | None = None,
) -> int:
    rows = table_of(table)
    keys = list(rows.primary_key)
    batch = select(*keys).where(belongs).limit(most or ROWS_PER_BATCH).cte("batch")
    removed = await session.execute(
        delete(rows).where(*(key == batch.c[key.name] for key in keys)).returning(keys[0])
    )
    return len(removed.all())


async def _detach_jobs(session: AsyncSession, domain_id: UUID) -> int:
    """Records of jobs outlive their site and keep its name in `result_data`."""
    batch = select(Job.id).where(Job.domain_id == domain_id).limit(JOBS_PER_BATCH).cte("batch")
    detached = await session.execute(
        update(Job)
        .where(Job.id == batch.c.id)
        .values(domain_id=None)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    )
    return len(detached.all())
