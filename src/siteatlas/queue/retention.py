"""Retention: prunes ended jobs with scans, the change feed, removed URLs, batches and workers.

Each call removes a small batch in one transaction; the caller repeats it while rows are removed.
Expired rows are found through dedicated indexes, so a call with nothing to do reads almost nothing.
Deleted sites are pruned by `catalog.domains`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Select,
    Uuid,
    and_,
    any_,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from siteatlas.catalog.sitemaps import INDEX
from siteatlas.catalog.urls import delete_rows
from siteatlas.queue.fence import ACTIVE_STATUSES
from siteatlas.queue.submission import freeze_items
from siteatlas.settings import Settings
from siteatlas.storage.models import (
    SITEMAP_JOB,
    AddressSlot,
    Batch,
    BatchItem,
    Candidate,
    Domain,
    FeedEvent,
    FeedEventKind,
    FeedHead,
    Job,
    JobStatus,
    RobotsFile,
    Scan,
    ScanState,
    Sitemap,
    SitemapScan,
    SitemapStatus,
    SitemapUrl,
    UrlChange,
    Worker,
)


def oldest_kept_scan(domain_id: Any, kept: int) -> ColumnElement[int]:
    """The oldest of the newest scans of a site, which are kept anyway; null if it has fewer."""
    newer = aliased(Scan)
    return (
        select(newer.id)
        .where(newer.domain_id == domain_id)
        .order_by(newer.id.desc())
        .offset(kept - 1)
        .limit(1)
        .scalar_subquery()
    )


def has_left_the_feed() -> ColumnElement[bool]:
    """SQL condition: no event of a scan is, or will be, in the change feed.

    The next publication of its site takes over the changes of a scan that was not published.
    """
    pruned_to = select(FeedHead.pruned_to).scalar_subquery()
    has_changes = exists().where(UrlChange.scan_id == Scan.id)
    return or_(Scan.published_seq.is_(None) & ~has_changes, Scan.published_seq <= pruned_to)


async def delete_scanned_documents(
    session: AsyncSession, scan_ids: Sequence[int], limit: int
) -> int:
    """Delete up to `limit` rows of what scans did with each document; return how many."""
    return await delete_rows(session, SitemapScan, SitemapScan.scan_id.in_(scan_ids), limit)


async def delete_scans(session: AsyncSession, scan_ids: Sequence[int]) -> None:
    """Delete scans without documents, and the candidates that no later scan looked at."""
    domains = select(Scan.domain_id).where(Scan.id.in_(scan_ids))
    await session.execute(
        delete(Candidate).where(Candidate.domain_id.in_(domains), Candidate.scan_id.in_(scan_ids))
    )
    # A retried job may have restarted one of them since.
    await session.execute(
        delete(Scan).where(Scan.id.in_(scan_ids), Scan.state != ScanState.RUNNING)
    )


SCANS_PER_BATCH = 1_000
ROWS_PER_BATCH = 20_000


async def raise_retained_from(session: AsyncSession, days: float) -> int:
    """Raise the number from which the feed is retained; 1 if it was raised.

    The transaction must be committed before `prune_feed` deletes anything.
    """
    head = (await session.execute(select(FeedHead.seq, FeedHead.retained_from))).one()
    kept_since = func.now() - timedelta(days=days)
    of_scans = _first_number(
        Scan.published_seq,
        head.retained_from,
        or_(Scan.finished_at.is_(None), Scan.finished_at >= kept_since),
    )
    of_events = _first_number(FeedEvent.seq, head.retained_from, FeedEvent.created_at >= kept_since)
    first_kept = [await session.scalar(of_scans), await session.scalar(of_events)]
    floor = min((number - 1 for number in first_kept if number is not None), default=head.seq)
    raised = await session.execute(
        update(FeedHead)
        .where(FeedHead.retained_from < floor)
        .values(retained_from=floor)
        .returning(FeedHead.seq)
    )
    return len(raised.all())


def _first_number(number: Any, after: int, is_kept: ColumnElement[bool]) -> Select[Any]:
    return select(number).where(number > after, is_kept).order_by(number).limit(1)


async def prune_feed(session: AsyncSession, days: float, kept_scans: int) -> int:
    """Delete a batch of the events up to `retained_from`, and scans that only they needed.

    What an event was about goes with it: earlier texts of robots.txt.
    """
    head = (await session.execute(select(FeedHead.retained_from, FeedHead.pruned_to))).one()
    if head.pruned_to >= head.retained_from:
        return 0
    due = (
        select(Scan.id, Scan.published_seq)
        .where(Scan.published_seq > head.pruned_to, Scan.published_seq <= head.retained_from)
        .order_by(Scan.published_seq)
        .limit(SCANS_PER_BATCH)
    )
    scans = (await session.execute(due)).all()
    locked = (await session.execute(due.with_for_update(skip_locked=True))).all()
    if len(locked) < len(scans):
        return 0  # another process is pruning them
    last = scans[-1].published_seq if len(scans) == SCANS_PER_BATCH else head.retained_from
    ids = [scan.id for scan in scans]
    numbered = and_(FeedEvent.seq > head.pruned_to, FeedEvent.seq <= last)
    if removed := await _delete_events(session, ids, numbered, days):
        return removed
    surplus = (await session.scalars(_surplus_scans_without_job(ids, kept_scans))).all()
    if removed := await delete_scanned_documents(session, surplus, ROWS_PER_BATCH):
        return removed
    await delete_scans(session, surplus)
    await session.execute(update(FeedHead).where(FeedHead.pruned_to < last).values(pruned_to=last))
    return len(surplus) + 1


def _surplus_scans_without_job(scan_ids: Sequence[int], kept: int) -> Select[int]:
    has_job = exists().where(Job.id == Scan.job_id)
    is_newest = Scan.id >= oldest_kept_scan(Scan.domain_id, kept)
    return select(Scan.id).where(Scan.id.in_(scan_ids), ~has_job, ~is_newest)


async def _delete_events(
    session: AsyncSession, scan_ids: Sequence[int], numbered: ColumnElement[bool], days: float
) -> int:
    changes = UrlChange.scan_id.in_(scan_ids)
    if removed := await delete_rows(session, UrlChange, changes, ROWS_PER_BATCH):
        return removed
    if removed := await _delete_robots_texts(session, scan_ids, days):
        return removed
    events = or_(FeedEvent.scan_id.in_(scan_ids), numbered)
    return await delete_rows(session, FeedEvent, events, ROWS_PER_BATCH)


async def _delete_robots_texts(session: AsyncSession, scan_ids: Sequence[int], days: float) -> int:
    newer = aliased(RobotsFile)
    changed = select(FeedEvent.domain_id).where(
        FeedEvent.scan_id.in_(scan_ids), FeedEvent.kind == FeedEventKind.ROBOTS_CHANGED
    )
    replaced = exists().where(
        newer.domain_id == RobotsFile.domain_id,
        newer.origin == RobotsFile.origin,
        newer.id > RobotsFile.id,
    )
    old = RobotsFile.last_seen_at < func.now() - timedelta(days=days)
    condition = and_(RobotsFile.domain_id.in_(changed), old, replaced)
    return await delete_rows(session, RobotsFile, condition, ROWS_PER_BATCH)


async def prune_removed_urls(session: AsyncSession, days: float) -> int:
    """Delete URLs of sites without an active job that were removed long ago.

    A running scan has loaded them; the locks prevent that a new one starts meanwhile.
    """
    due = SitemapUrl.removed_at < func.now() - timedelta(days=days)
    active = exists().where(Job.domain_id == Sitemap.domain_id, Job.status.in_(ACTIVE_STATUSES))
    listed_by = Sitemap.id == SitemapUrl.sitemap_id
    rows = select(Sitemap.domain_id).join(SitemapUrl, listed_by).where(due, ~active)
    sites = func.array(rows.limit(ROWS_PER_BATCH).scalar_subquery(), type_=ARRAY(Uuid()))
    idle = select(Domain.id).where(Domain.id == any_(sites)).with_for_update(skip_locked=True)
    locked = (await session.scalars(idle)).all()
    of_sites = Sitemap.domain_id == any_(literal(locked, ARRAY(Uuid())))
    documents = select(Sitemap.id).where(of_sites, ~active)
    condition = and_(due, SitemapUrl.sitemap_id.in_(documents))
    return await delete_rows(session, SitemapUrl, condition, ROWS_PER_BATCH)


DOCUMENTS_PER_BATCH = 5_000


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
            .limit(1_000 - len(ids))
            .with_for_update(skip_locked=True)
        )
        ids += (await session.scalars(statement)).all()
    return ids


def _surplus_scans(job_ids: Sequence[int], kept: int) -> Select[int]:
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
        .limit(20)
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
    # A listed document is younger than this while its scan runs, or the scan has an active job.
    never_requested = and_(
        Sitemap.status == SitemapStatus.PENDING,
        Sitemap.type.is_(None),
        Sitemap.created_at < func.now() - timedelta(hours=1),
    )
    active = exists().where(Job.domain_id == Sitemap.domain_id, Job.status.in_(ACTIVE_STATUSES))
    site = select(Sitemap.domain_id).where(never_requested, ~active).limit(1)
    domain_id = (await session.execute(site)).scalar()
    if domain_id is None:
        return 0
    idle = select(Domain.id).where(Domain.id == domain_id).with_for_update(skip_locked=True)
    if (await session.execute(idle)).scalar() is None:
        return 0
    # An index that is unchanged would else list only the documents that are left.
    indexes = (Sitemap.domain_id == domain_id, Sitemap.type == INDEX)
    forgotten = {"etag": None, "last_modified": None, "content_hash": None}
    await session.execute(update(Sitemap).where(*indexes).values(forgotten))
    belongs = and_(Sitemap.domain_id == domain_id, never_requested, ~active)
    return await delete_rows(session, Sitemap, belongs, DOCUMENTS_PER_BATCH)


async def prune_workers(session: AsyncSession) -> int:
    """Forget processes that have not been seen for a day, and expired leases on addresses."""
    await session.execute(delete(AddressSlot).where(AddressSlot.until < func.now()))
    statement = (
        delete(Worker)
        .where(Worker.last_seen_at < func.now() - timedelta(hours=24))
        .returning(Worker.id)
    )
    return len((await session.execute(statement)).all())
