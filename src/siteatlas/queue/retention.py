"""Prunes ended jobs with their scans, batches and workers.

Deleted sites are pruned by `storage.statements.deleted_domains`, the change feed by
`feed_retention.py`. Each call removes a small batch in
one transaction; the caller repeats it while rows are removed. Expired rows are found through
dedicated indexes, so a call with nothing to do reads almost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from sqlalchemy import Select, and_, delete, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.batches import freeze_items
from siteatlas.queue.pruned_scans import (
    delete_scanned_documents,
    delete_scans,
    has_left_the_feed,
    oldest_kept_scan,
)
from siteatlas.queue.statuses import ACTIVE_STATUSES
from siteatlas.settings import Settings
from siteatlas.storage.models import (
    SITEMAP_JOB,
    Batch,
    BatchItem,
    Domain,
    Job,
    JobStatus,
    Scan,
    ScanState,
    Sitemap,
    SitemapStatus,
    Worker,
)
from siteatlas.storage.statements.bulk import delete_rows

WORKER_HOURS = 24
JOBS_PER_BATCH = 1_000
SCANS_PER_BATCH = 1_000
BATCHES_PER_BATCH = 20
ROWS_PER_BATCH = 20_000
DOCUMENTS_PER_BATCH = 5_000
# A listed document is younger than this while its scan runs, or the scan has an active job.
UNREQUESTED_HOURS = 1


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days records are kept after their end, and how many scans of a site in any case."""

    completed_job_days: float = 30
    failed_job_days: float = 90
    batch_days: float = 90
    scans: int = 10
    change_days: float = 90
    removed_url_days: float = 365
    audit_days: float = 365
    delivery_days: float = 30

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The retention that the operator chose."""
        return cls(
            completed_job_days=settings.keep_completed_jobs_days,
            failed_job_days=settings.keep_failed_jobs_days,
            batch_days=settings.keep_batches_days,
            scans=settings.keep_scans,
            change_days=settings.keep_changes_days,
            removed_url_days=settings.keep_removed_urls_days,
            audit_days=settings.keep_audit_days,
            delivery_days=settings.keep_deliveries_days,
        )

    @property
    def days_for_removed_urls(self) -> float:
        """At least as long as their changes, by which the URLs of a past time are found."""
        return max(self.removed_url_days, self.change_days)

    def days_for(self, status: JobStatus) -> float:
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
    in_feed = (await session.scalars(_surplus_scans_in_feed(ids, keep.scans))).all()
    documents = await delete_scanned_documents(session, [*scans, *in_feed], ROWS_PER_BATCH)
    if documents:
        return documents
    await delete_scans(session, scans)
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
                Job.finished_at < func.now() - timedelta(days=keep.days_for(status)),
            )
            .order_by(Job.finished_at)
            .limit(JOBS_PER_BATCH - len(ids))
            .with_for_update(skip_locked=True)
        )
        ids += (await session.scalars(statement)).all()
    return ids


def _surplus_scans(job_ids: Sequence[int], kept: int) -> Select[int]:
    """Scans up to those of these jobs, except the newest of each site and those in the feed."""
    sites = (
        select(Scan.domain_id, func.max(Scan.id).label("last_id"))
        .where(Scan.job_id.in_(job_ids))
        .group_by(Scan.domain_id)
        .cte("sites")
    )
    oldest_kept = oldest_kept_scan(sites.c.domain_id, kept)
    return (
        select(Scan.id)
        .join(sites, Scan.domain_id == sites.c.domain_id)
        .where(Scan.id <= sites.c.last_id, Scan.id < oldest_kept, Scan.state != ScanState.RUNNING)
        .where(has_left_the_feed())
        .limit(SCANS_PER_BATCH)
    )


def _surplus_scans_in_feed(job_ids: Sequence[int], kept: int) -> Select[int]:
    """The scans of these jobs that only the feed still needs, which has no use for documents."""
    is_surplus = Scan.id < oldest_kept_scan(Scan.domain_id, kept)
    is_needed = ~has_left_the_feed()
    return select(Scan.id).where(Scan.job_id.in_(job_ids), is_surplus, is_needed)


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


async def prune_unrequested_documents(session: AsyncSession) -> int:
    """Prune listed documents that no scan has requested, for one site without an active job.

    A scan removes its own when it ends; these were left by an older version or a crash. The lock
    prevents submissions for this site meanwhile.
    """
    never_requested = and_(
        Sitemap.status == SitemapStatus.PENDING,
        Sitemap.type.is_(None),
        Sitemap.created_at < func.now() - timedelta(hours=UNREQUESTED_HOURS),
    )
    active = exists().where(Job.domain_id == Sitemap.domain_id, Job.status.in_(ACTIVE_STATUSES))
    site = select(Sitemap.domain_id).where(never_requested, ~active).limit(1)
    domain_id = (await session.execute(site)).scalar()
    if domain_id is None:
        return 0
    idle = select(Domain.id).where(Domain.id == domain_id).with_for_update(skip_locked=True)
    if (await session.execute(idle)).scalar() is None:
        return 0
    belongs = and_(Sitemap.domain_id == domain_id, never_requested, ~active)
    return await delete_rows(session, Sitemap, belongs, DOCUMENTS_PER_BATCH)


async def prune_workers(session: AsyncSession) -> int:
    """Forget processes that have not been seen for a day."""
    statement = (
        delete(Worker)
        .where(Worker.last_seen_at < func.now() - timedelta(hours=WORKER_HOURS))
        .returning(Worker.id)
    )
    return len((await session.execute(statement)).all())
