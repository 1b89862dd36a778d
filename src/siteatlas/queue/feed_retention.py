"""Prunes the change feed and the URLs that were removed long ago.

The feed first says from which number on it is retained, and only then loses events, so that no
reader finds a hole. Like the other steps of `retention.py`, each call removes a small batch in one
transaction, finds it through an index, and is repeated while rows are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from siteatlas.queue.pruned_scans import (
    delete_scanned_documents,
    delete_scans,
    oldest_kept_scan,
)
from siteatlas.queue.statuses import ACTIVE_STATUSES
from siteatlas.storage.models import (
    Domain,
    FeedEvent,
    FeedEventKind,
    FeedHead,
    Job,
    RobotsFile,
    Scan,
    Sitemap,
    SitemapUrl,
    UrlChange,
)
from siteatlas.storage.statements.bulk import delete_rows

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
    """The first number after another one that is young enough to be kept."""
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
    surplus = (await session.scalars(_surplus_scans(ids, kept_scans))).all()
    if removed := await delete_scanned_documents(session, surplus, ROWS_PER_BATCH):
        return removed
    await delete_scans(session, surplus)
    await session.execute(update(FeedHead).where(FeedHead.pruned_to < last).values(pruned_to=last))
    return len(surplus) + 1


def _surplus_scans(scan_ids: Sequence[int], kept: int) -> Select[int]:
    """Those of these scans whose jobs are gone and that are not the newest of their site."""
    has_job = exists().where(Job.id == Scan.job_id)
    is_newest = Scan.id >= oldest_kept_scan(Scan.domain_id, kept)
    return select(Scan.id).where(Scan.id.in_(scan_ids), ~has_job, ~is_newest)


async def _delete_events(
    session: AsyncSession, scan_ids: Sequence[int], numbered: ColumnElement[bool], days: float
) -> int:
    """Delete a batch of the changes and events of scans; 0 when none is left."""
    changes = UrlChange.scan_id.in_(scan_ids)
    if removed := await delete_rows(session, UrlChange, changes, ROWS_PER_BATCH):
        return removed
    if removed := await _delete_robots_texts(session, scan_ids, days):
        return removed
    events = or_(FeedEvent.scan_id.in_(scan_ids), numbered)
    return await delete_rows(session, FeedEvent, events, ROWS_PER_BATCH)


async def _delete_robots_texts(session: AsyncSession, scan_ids: Sequence[int], days: float) -> int:
    """Delete texts of robots.txt that another one replaced before the retained events."""
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
    """Delete URLs of one site without an active job that were removed long ago.

    A running scan has loaded them; the lock prevents that a new one starts meanwhile.
    """
    due = SitemapUrl.removed_at < func.now() - timedelta(days=days)
    active = exists().where(Job.domain_id == Sitemap.domain_id, Job.status.in_(ACTIVE_STATUSES))
    listed_by = Sitemap.id == SitemapUrl.sitemap_id
    site = select(Sitemap.domain_id).join(SitemapUrl, listed_by).where(due, ~active).limit(1)
    domain_id = (await session.execute(site)).scalar()
    if domain_id is None:
        return 0
    idle = select(Domain.id).where(Domain.id == domain_id).with_for_update(skip_locked=True)
    if (await session.execute(idle)).scalar() is None:
        return 0
    documents = select(Sitemap.id).where(Sitemap.domain_id == domain_id, ~active)
    condition = and_(due, SitemapUrl.sitemap_id.in_(documents))
    return await delete_rows(session, SitemapUrl, condition, ROWS_PER_BATCH)
