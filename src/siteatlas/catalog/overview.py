"""What the overview shows: totals of all sites, latest changes, sites in trouble, and activity.

Totals come from the counters of domains and scans; no statement reads URL rows. The activity is a
mark that changes when something on a page may have, so that open pages know when to load again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Text, case, cast, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.domains import DomainState, in_state, partial_reasons, unread_document
from siteatlas.catalog.newest_changes import newest_unexamined_number
from siteatlas.storage.models import (
    Domain,
    FeedHead,
    Job,
    JobStatus,
    LastScanStatus,
    Scan,
)
from siteatlas.storage.session import Reader


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of all sites together."""

    domains: int
    watched: int
    urls: int
    sitemaps: int
    unscanned: int
    attention: int


async def totals(session: AsyncSession) -> Totals:
    """Counters of all sites, from their rows."""
    statement = select(
        func.count(),
        func.count().filter(Domain.watched),
        func.coalesce(func.sum(Domain.url_count), 0),
        func.coalesce(func.sum(Domain.sitemap_count), 0),
        func.count().filter(Domain.last_scan_at.is_(None)),
        func.count().filter(in_state(DomainState.ATTENTION)),
    ).where(Domain.deleted_at.is_(None))
    return Totals(*(int(value) for value in (await session.execute(statement)).one()))


async def first_scan_at(session: AsyncSession) -> datetime | None:
    """When the first scan that is kept began."""
    return await session.scalar(select(Scan.started_at).order_by(Scan.id).limit(1))


@dataclass(frozen=True, slots=True)
class PublishedScan:
    """A scan that changed something, as the lists of latest changes show it."""

    id: int
    domain: str
    finished_at: datetime
    published_seq: int
    change_counts: dict[str, int]


async def latest_scans_with_changes(
    session: AsyncSession, after: int = 0, limit: int = 8
) -> list[PublishedScan]:
    """The latest scans behind a number that changed something, among the newest."""
    older = await session.scalar(newest_unexamined_number())
    statement = (
        select(Scan.id, Domain.domain, Scan.finished_at, Scan.published_seq, Scan.change_counts)
        .join(Domain, Domain.id == Scan.domain_id)
        .where(
            Scan.published_seq > max(after, older or 0),
            Domain.deleted_at.is_(None),
            func.coalesce(cast(Scan.change_counts, Text), "{}") != "{}",
        )
        .order_by(Scan.published_seq.desc())
        .limit(limit)
    )
    rows: Sequence[Any] = (await session.execute(statement)).all()
    return [PublishedScan(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class TroubledDomain:
    """A site that needs attention, why, and a document that could not be read if there is one."""

    domain: str
    last_scan_status: LastScanStatus | None
    last_error_code: str | None
    missing_count: int
    last_scan_at: datetime | None
    reasons: list[str]
    sitemap_id: UUID | None


async def domains_in_trouble(session: AsyncSession, limit: int = 8) -> list[TroubledDomain]:
    """The sites that need attention, failed ones first, then partial ones, the largest first."""
    status, partial = Domain.last_scan_status, LastScanStatus.PARTIAL
    badness = case((status == LastScanStatus.FAILED, 0), (status == partial, 1), else_=2)
    failures, urls = Domain.failures_in_a_row.desc(), Domain.url_count.desc()
    order = (badness, failures, urls, Domain.domain)
    in_trouble = select(Domain.id).where(
        Domain.deleted_at.is_(None), in_state(DomainState.ATTENTION)
    )
    statement = select(
        Domain.domain,
        Domain.last_scan_status,
        Domain.last_error_code,
        Domain.missing_count,
        Domain.last_scan_at,
        partial_reasons(),
        unread_document(),
    )
    worst = in_trouble.order_by(*order).limit(limit)
    statement = statement.where(Domain.id.in_(worst)).order_by(*order)
    return [TroubledDomain(*row) for row in await session.execute(statement)]


class Activity(NamedTuple):
    """The head of the feed, the newest job, and the jobs that run, by their last update."""

    feed_seq: int
    newest_job: int
    running: int
    updated: float

    @property
    def mark(self) -> str:
        """The activity as one word."""
        return "-".join(f"{part:g}" if isinstance(part, float) else str(part) for part in self)


_is_running = Job.status == JobStatus.PROCESSING
_read_activity = select(
    func.coalesce(select(FeedHead.seq).scalar_subquery(), 0),
    func.coalesce(select(func.max(Job.id)).scalar_subquery(), 0),
    select(func.count()).select_from(Job).where(_is_running).scalar_subquery(),
    func.coalesce(
        select(func.extract("epoch", func.max(Job.updated_at)))
        .where(_is_running)
        .scalar_subquery(),
        0,
    ),
)


async def read_activity(session: Reader) -> Activity:
    """The activity at this moment; touches the rows of running jobs only."""
    seq, newest, running, updated = (await session.execute(_read_activity)).one()
    return Activity(int(seq), int(newest), int(running), float(updated))
