"""What the overview shows: totals of all sites, changes per day, running jobs, sites in trouble.

Totals come from the counters of domains and scans; no statement reads URL rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Date, Text, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import ChangeKind, Domain, LastScanStatus, Scan, ScanState

ATTENTION_ROWS = 8
LATEST_ROWS = 12
ADDED = (ChangeKind.ADDED, ChangeKind.BACK)
REMOVED = (ChangeKind.REMOVED, ChangeKind.EXPIRED)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of all sites together."""

    domains: int
    watched: int
    urls: int
    sitemaps: int
    missing_urls: int
    failing: int


@dataclass(frozen=True, slots=True)
class DailyChanges:
    """URLs that were added and removed on one day, by the clock of the database."""

    day: date
    added: int
    removed: int
    scans: int


@dataclass(frozen=True, slots=True)
class PublishedScan:
    """A scan that changed something, as the lists of latest changes show it."""

    id: int
    domain: str
    finished_at: datetime
    published_seq: int
    change_counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class TroubledDomain:
    """A site that needs attention, and why."""

    domain: str
    last_scan_status: LastScanStatus | None
    last_error_code: str | None
    failures_in_a_row: int
    missing_count: int
    last_scan_at: datetime | None


async def totals(session: AsyncSession) -> Totals:
    """Counters of all sites, from their rows."""
    failing = Domain.last_scan_status == LastScanStatus.FAILED
    statement = select(
        func.count(),
        func.count().filter(Domain.watched),
        func.coalesce(func.sum(Domain.url_count), 0),
        func.coalesce(func.sum(Domain.sitemap_count), 0),
        func.coalesce(func.sum(Domain.missing_count), 0),
        func.count().filter(failing),
    ).where(Domain.deleted_at.is_(None))
    return Totals(*(int(value) for value in (await session.execute(statement)).one()))


async def changes_per_day(session: AsyncSession, days: int) -> list[DailyChanges]:
    """What was added and removed on each of the last days, also on days without a scan."""
    day = cast(Scan.finished_at, Date)
    statement = (
        select(day, _sum_of(ADDED), _sum_of(REMOVED), func.count())
        .where(
            Scan.state == ScanState.PUBLISHED,
            Scan.finished_at >= func.now() - timedelta(days=days),
        )
        .group_by(day)
    )
    found = {
        row[0]: DailyChanges(row[0], int(row[1]), int(row[2]), row[3])
        for row in await session.execute(statement)
    }
    today: date = (await session.execute(select(cast(func.now(), Date)))).scalar_one()
    wanted = (today - timedelta(days=back) for back in range(days - 1, -1, -1))
    return [found.get(one, DailyChanges(one, 0, 0, 0)) for one in wanted]


def _sum_of(kinds: tuple[ChangeKind, ...]) -> Any:
    """The changes of these kinds, summed over scans."""
    counts = [
        func.coalesce(cast(Scan.change_counts[kind.value].astext, BigInteger), 0) for kind in kinds
    ]
    return func.coalesce(func.sum(sum(counts[1:], counts[0])), 0)


async def latest_changes(session: AsyncSession, limit: int = LATEST_ROWS) -> list[PublishedScan]:
    """The latest scans that changed something."""
    statement = (
        select(Scan.id, Domain.domain, Scan.finished_at, Scan.published_seq, Scan.change_counts)
        .join(Domain, Domain.id == Scan.domain_id)
        .where(
            Scan.published_seq.is_not(None),
            Domain.deleted_at.is_(None),
            func.coalesce(cast(Scan.change_counts, Text), "{}") != "{}",
        )
        .order_by(Scan.published_seq.desc())
        .limit(limit)
    )
    rows: Sequence[Any] = (await session.execute(statement)).all()
    return [PublishedScan(*row) for row in rows]


async def domains_in_trouble(
    session: AsyncSession, limit: int = ATTENTION_ROWS
) -> list[TroubledDomain]:
    """Sites whose last scan failed or is partial, or whose removals are held."""
    statement = (
        select(
            Domain.domain,
            Domain.last_scan_status,
            Domain.last_error_code,
            Domain.failures_in_a_row,
            Domain.missing_count,
            Domain.last_scan_at,
        )
        .where(
            Domain.deleted_at.is_(None),
            or_(
                Domain.last_scan_status.in_([LastScanStatus.FAILED, LastScanStatus.PARTIAL]),
                Domain.missing_count > 0,
            ),
        )
        .order_by(Domain.failures_in_a_row.desc(), Domain.last_scan_at.desc().nulls_last())
        .limit(limit)
    )
    return [TroubledDomain(*row) for row in await session.execute(statement)]
