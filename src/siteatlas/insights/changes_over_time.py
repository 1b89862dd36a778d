"""How many URLs were added and removed in each hour or day, from the counters of scans.

An hour or day that is over does not change any more: it is read once and remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, cast, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.feed_positions import last_number_before
from siteatlas.storage.models import ChangeKind, Scan

ADDED = (ChangeKind.ADDED, ChangeKind.BACK)
REMOVED = (ChangeKind.REMOVED, ChangeKind.EXPIRED)
# The end of a scan is written before its transaction commits.
SETTLED_AFTER = timedelta(minutes=10)
KEPT_PERIODS = 200


class Period(StrEnum):
    """What a bar of the charts stands for."""

    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return timedelta(hours=1) if self is Period.HOUR else timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PeriodChanges:
    """URLs that were added and removed in one hour or day of UTC."""

    start: datetime
    added: int
    removed: int
    scans: int


class ChangesOverTime:
    """Reads changes over time; what is over is read once by each process."""

    def __init__(self) -> None:
        self._settled: dict[tuple[Period, datetime], PeriodChanges] = {}

    async def read(self, session: AsyncSession, period: Period, count: int) -> list[PeriodChanges]:
        """The changes of each of the last hours or days, scanned or not, the oldest first."""
        now, current = await _current_period(session, period)
        wanted = [current - back * period.length for back in range(count - 1, -1, -1)]
        unknown = [start for start in wanted if (period, start) not in self._settled]
        found = await _read_since(session, period, unknown[0])
        known = {start: found.get(start, PeriodChanges(start, 0, 0, 0)) for start in unknown}
        self._remember(period, known, before=now - SETTLED_AFTER - period.length)
        return [known.get(start) or self._settled[period, start] for start in wanted]

    def _remember(
        self, period: Period, known: dict[datetime, PeriodChanges], *, before: datetime
    ) -> None:
        """Keep what was read of periods that ended long enough ago; forget the oldest."""
        self._settled |= {(period, start): one for start, one in known.items() if start <= before}
        for oldest in sorted(self._settled, key=lambda key: key[1])[:-KEPT_PERIODS]:
            del self._settled[oldest]


async def _current_period(session: AsyncSession, period: Period) -> tuple[datetime, datetime]:
    """The time by the clock of the database, and the start of the period that it is in."""
    now, start = (await session.execute(select(func.now(), _start_of(period, func.now())))).one()
    return now, start


async def _read_since(
    session: AsyncSession, period: Period, since: datetime
) -> dict[datetime, PeriodChanges]:
    """The changes of each period with a scan, from this one on.

    Scans are found by their number, as their end has no index: what a scan before the margin has
    published came before all that ended in these periods.
    """
    earlier = await last_number_before(session, since - SETTLED_AFTER)
    start = _start_of(period, Scan.finished_at).label("start")
    statement = (
        select(start, _sum_of(ADDED), _sum_of(REMOVED), func.count())
        .where(Scan.published_seq > earlier, Scan.finished_at >= since)
        .group_by(start)
    )
    rows = await session.execute(statement)
    return {row[0]: PeriodChanges(row[0], int(row[1]), int(row[2]), row[3]) for row in rows}


def _start_of(period: Period, moment: Any) -> Any:
    """The start of the hour or day of UTC that a moment is in.

    The words are part of the statement, not parameters, because it groups by them.
    """
    return func.date_trunc(literal_column(f"'{period.value}'"), moment, literal_column("'UTC'"))


def _sum_of(kinds: tuple[ChangeKind, ...]) -> Any:
    """The changes of these kinds, summed over scans."""
    counts = [
        func.coalesce(cast(Scan.change_counts[kind.value].astext, BigInteger), 0) for kind in kinds
    ]
    return func.coalesce(func.sum(sum(counts[1:], counts[0])), 0)
