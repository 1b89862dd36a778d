"""The last scans of sites, for the charts next to their names and over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, func, literal, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.views import select_view
from siteatlas.storage.models import Scan, ScanState

STRIP_SCANS = 20
MAX_POINTS = 500


@dataclass(frozen=True, slots=True)
class ScanPoint:
    """One ended scan of a site."""

    id: int
    domain_id: UUID
    state: ScanState
    partial: bool
    started_at: datetime
    finished_at: datetime | None
    url_count: int
    change_counts: dict[str, int] | None

    @property
    def seconds(self) -> float:
        """How long it took; zero while it runs."""
        return (self.finished_at - self.started_at).total_seconds() if self.finished_at else 0.0


async def recent_scans(
    session: AsyncSession, domain_ids: Sequence[UUID], count: int = STRIP_SCANS
) -> dict[UUID, list[ScanPoint]]:
    """The last scans of each of these sites, the oldest first."""
    if not domain_ids:
        return {}
    given = literal(list(domain_ids), ARRAY(Uuid()))
    sites = select(func.unnest(given).label("id")).subquery("sites")
    latest = (
        select_view(ScanPoint, Scan)
        .where(Scan.domain_id == sites.c.id, Scan.state != ScanState.RUNNING)
        .order_by(Scan.id.desc())
        .limit(count)
        .lateral("latest")
    )
    statement = select(*latest.c).select_from(sites.join(latest, true())).order_by(latest.c.id)
    found: dict[UUID, list[ScanPoint]] = {domain_id: [] for domain_id in domain_ids}
    for row in await session.execute(statement):
        point = ScanPoint(*row)
        found[point.domain_id].append(point)
    return found


async def urls_over_time(session: AsyncSession, domain_id: UUID, days: int) -> list[ScanPoint]:
    """The published scans of a site in the last days, the oldest first; at most `MAX_POINTS`."""
    statement = (
        select_view(ScanPoint, Scan)
        .where(
            Scan.domain_id == domain_id,
            Scan.state == ScanState.PUBLISHED,
            Scan.finished_at >= func.now() - timedelta(days=days),
        )
        .order_by(Scan.id.desc())
        .limit(MAX_POINTS)
    )
    rows = (await session.execute(statement)).all()
    return [ScanPoint(*row) for row in reversed(rows)]
