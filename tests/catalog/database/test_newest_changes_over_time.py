"""Changes over time: each hour and day has its sum, and what is over is read once."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, func
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.newest_changes import ChangesOverTime, Period, PeriodChanges
from siteatlas.storage.models import Scan
from tests.fixtures.changes import add_old_scans, add_published_scan
from tests.fixtures.database import scans_read
from tests.fixtures.records import add_domain


async def add_published(session: AsyncSession, ago: timedelta, **counts: int) -> Scan:
    """A scan that was published this long ago."""
    domain = await add_domain(session, f"site-{ago.total_seconds():.0f}.example")
    finished_at = func.now() - ago
    return await add_published_scan(session, domain, finished_at=finished_at, change_counts=counts)


def sums(read: list[PeriodChanges]) -> tuple[int, int, int]:
    """Added, removed and scans of all periods."""
    return (
        sum(one.added for one in read),
        sum(one.removed for one in read),
        sum(one.scans for one in read),
    )


async def test_each_day_and_hour_has_the_sum_of_its_scans(session: AsyncSession):
    await add_published(session, timedelta(days=40), added=100)
    await add_published(session, timedelta(days=3), added=10)
    await add_published(session, timedelta(), added=3, back=1, removed=2, expired=5, changed=9)
    changes = ChangesOverTime()
    days = await changes.read(session, Period.DAY, 7)
    hours = await changes.read(session, Period.HOUR, 24)
    assert [(one.added, one.removed) for one in days] == [
        (0, 0), (0, 0), (0, 0), (10, 0), (0, 0), (0, 0), (4, 7),
    ]  # fmt: skip
    assert (len(hours), sums(hours)) == (24, (4, 7, 1))
    assert (hours[-1].added, hours[-1].removed) == (4, 7)


async def test_what_is_over_is_remembered_and_what_is_not_is_read_again(session: AsyncSession):
    await add_published(session, timedelta(days=3), added=10)
    changes = ChangesOverTime()
    assert sums(await changes.read(session, Period.DAY, 7)) == (10, 0, 1)
    await session.execute(delete(Scan))
    await add_published(session, timedelta(), added=1)
    assert sums(await changes.read(session, Period.DAY, 7)) == (11, 0, 2)
    assert sums(await ChangesOverTime().read(session, Period.DAY, 7)) == (1, 0, 1)


async def test_scans_of_other_days_are_not_read(session: AsyncSession):
    await add_old_scans(session, 3_000, ago=timedelta(days=3))
    await add_published(session, timedelta(), added=1)
    changes = ChangesOverTime()
    before = await scans_read(session)
    assert sums(await changes.read(session, Period.DAY, 1)) == (1, 0, 1)
    assert await scans_read(session) - before < 10
