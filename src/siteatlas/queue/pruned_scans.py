"""Deletes scans that are no longer kept, with what they did with each document and candidate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from siteatlas.storage.models import Candidate, FeedHead, Scan, ScanState, SitemapScan, UrlChange
from siteatlas.storage.statements.bulk import delete_rows


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
