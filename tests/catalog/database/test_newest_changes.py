"""Lists of what was published last look at a bounded number of scans, and say where to go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog import newest_changes as newest_numbers
from siteatlas.catalog.newest_changes import (
    ChangesOverTime,
    Numbers,
    count_changes,
    first_changes,
    last_scan_number,
    list_published,
    read_published,
)
from siteatlas.catalog.overview import latest_scans_with_changes
from siteatlas.storage.models import Domain
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.records import add_domain, add_sitemap, every_page

MOVED = frozenset({"moved"})


async def site_with_rare_kinds(session: AsyncSession) -> Domain:
    """Ten scans: the first and the fifth moved URLs, and the first one changed robots.txt."""
    domain = await add_domain(session)
    for number in range(1, 11):
        counts = {"moved": 1} if number in {1, 5} else {}
        scan = await add_published_scan(session, domain, change_counts=counts)
        if number == 1:
            await add_event(session, domain, "robots_changed", scan)
    return domain


@pytest.mark.parametrize("of_site", [False, True])
@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (MOVED, [[], [5], [], [1]]),
        ({"robots_changed"}, [[], [], [], [1]]),
        ({"removed"}, [[], [], [], []]),
    ],
)
async def test_a_page_of_a_rare_kind_looks_at_a_limited_number_of_scans(
    session: AsyncSession,
    monkeypatch: pytest.MonkeyPatch,
    *,
    of_site: bool,
    kinds: set[str],
    expected: list[list[int]],
):
    monkeypatch.setattr(newest_numbers, "MAX_SCANS", 3)
    domain_id = (await site_with_rare_kinds(session)).id if of_site else None
    if not of_site:
        await site_with_rare_kinds(session)
    pages = await every_page(
        lambda cursor: list_published(
            session, domain_id=domain_id, kinds=frozenset(kinds), cursor=cursor
        )
    )
    assert [[one.seq for one in page] for page in pages] == expected


async def test_the_last_scan_of_a_window_is_not_followed_by_an_empty_page(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(newest_numbers, "MAX_SCANS", 10)
    await site_with_rare_kinds(session)
    page = await list_published(session, kinds=MOVED)
    assert ([one.seq for one in page.items], page.next_cursor) == ([5, 1], None)


async def test_a_full_page_continues_behind_its_last_publication(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(newest_numbers, "MAX_SCANS", 9)
    domain = await site_with_rare_kinds(session)
    for _ in range(3):
        await add_published_scan(session, domain, change_counts={"moved": 1})
    pages = await every_page(
        lambda cursor: list_published(session, kinds=MOVED, limit=2, cursor=cursor)
    )
    assert [[one.seq for one in page] for page in pages] == [[13, 12], [11, 5], [1]]


async def test_the_latest_scans_with_changes_are_looked_for_among_the_newest(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    await site_with_rare_kinds(session)
    assert [one.published_seq for one in await latest_scans_with_changes(session)] == [5, 1]
    monkeypatch.setattr(newest_numbers, "MAX_SCANS", 6)
    assert [one.published_seq for one in await latest_scans_with_changes(session)] == [5]


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


async def test_a_period_has_the_numbers_that_were_taken_in_it(session: AsyncSession):
    domain, other = await add_domain(session), await add_domain(session, "b.example")
    await add_published_scan(session, domain, finished_at=NOON - 2 * DAY)
    await add_event(session, domain, "scan_failed", created_at=NOON - DAY)
    await add_published_scan(session, other, finished_at=NOON)
    await add_event(session, domain, "scan_failed", created_at=NOON + DAY)
    half, history = DAY / 2, ChangesOverTime()

    async def numbers(since: datetime | None, until: datetime | None) -> tuple[int, int]:
        found = await history.numbers(session, since, until)
        return found.after, found.until

    assert await numbers(None, None) == (0, 4)
    assert await numbers(NOON - DAY - half, None) == (1, 4)
    assert await numbers(NOON - half, NOON + half) == (2, 3)
    assert await numbers(NOON + 2 * DAY, None) == (4, 4)
    assert await numbers(None, NOON - 3 * DAY) == (0, 0)
    page = await list_published(session, domain_id=domain.id, numbers=Numbers(1, 3))
    assert [one.seq for one in page.items] == [2]
    assert await last_scan_number(session) == Numbers(2, 3)
    assert await last_scan_number(session, domain.id) == Numbers(0, 1)


async def test_events_are_counted_by_kind_without_first_scans(session: AsyncSession):
    domain, gone = await add_domain(session), await add_domain(session, "gone.example")
    first = await add_published_scan(session, domain, change_counts={})
    await add_event(session, domain, "baseline", first)
    for counts in ({"added": 2, "removed": 1}, {"added": 3}):
        scan = await add_published_scan(session, domain, change_counts=counts)
        await add_event(session, domain, "robots_changed", scan)
    await add_event(session, domain, "scan_failed")
    await add_published_scan(session, gone, change_counts={"added": 9})
    gone.deleted_at = NOON
    await session.flush()
    expected = {"added": 5, "removed": 1, "robots_changed": 2, "scan_failed": 1}
    assert await count_changes(session, Numbers(0, 9)) == expected
    assert await count_changes(session, Numbers(0, 9), domain.id) == expected
    assert await count_changes(session, Numbers(1, 2)) == {
        "added": 2,
        "removed": 1,
        "robots_changed": 1,
    }


async def test_totals_before_today_are_kept_and_those_of_today_are_not(session: AsyncSession):
    domain, history = await add_domain(session), ChangesOverTime()
    old = {"finished_at": datetime.now(UTC) - 2 * DAY}
    scan = await add_published_scan(session, domain, change_counts={"added": 2}, **old)
    await add_published_scan(session, domain, change_counts={"added": 1})
    assert await history.totals(session, Numbers(0, 2)) == {"added": 3}
    scan.change_counts = {}
    await add_published_scan(session, domain, change_counts={"removed": 5})
    assert await history.totals(session, Numbers(0, 3)) == {"added": 3, "removed": 5}
    assert await history.totals(session, Numbers(0, 3), domain.id) == {"added": 1, "removed": 5}
    assert await history.totals(session, Numbers(1, 2)) == {"added": 1}


async def scan_with_changes(session: AsyncSession) -> Domain:
    """A scan that added 30 URLs and removed 20; their order by hash is not that by address."""
    domain = await add_domain(session)
    scan = await add_published_scan(session, domain, change_counts={"added": 30, "removed": 20})
    sitemap = await add_sitemap(session, domain)
    for key in range(50):
        kind, url = ("added", "removed")[key >= 30], f"https://example.com/{99 - key}"
        await add_changes(session, scan, sitemap, [key], kind, url=url)
    await add_event(session, domain, "robots_changed", scan)
    return domain


async def test_a_list_shows_the_first_urls_of_each_group(session: AsyncSession):
    await scan_with_changes(session)
    scans = (await list_published(session)).items
    shown = (await first_changes(session, scans))[1]
    assert [(one.kind, (one.url or "")[-2:]) for one in shown] == [
        *(("added", str(number)) for number in range(70, 75)),
        *(("removed", str(number)) for number in range(50, 55)),
    ]
    removed = (await first_changes(session, scans, frozenset({"removed"})))[1]
    assert [(one.url or "")[-2:] for one in removed] == [str(number) for number in range(50, 60)]


async def test_more_changes_than_can_be_sorted_are_shown_all_the_same(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(newest_numbers, "MAX_SORTED", 49)
    await scan_with_changes(session)
    assert len((await first_changes(session, (await list_published(session)).items))[1]) == 10
    stored = await read_published(session, 1)
    assert (len(stored.items), stored.is_sorted) == (51, False)


async def test_the_changes_of_a_number_are_paged_in_order(session: AsyncSession):
    await scan_with_changes(session)
    expected = [*range(70, 100), *range(50, 70)]
    urls, kinds, cursor = list[int](), list[str](), None
    for _ in range(3):
        page = await read_published(session, 1, limit=20, cursor=cursor)
        assert page.is_sorted
        urls += [int(one.url[-2:]) for one in page.items if one.url]
        kinds += [one.kind for one in page.items]
        cursor = page.next_cursor
    assert (urls, cursor) == (expected, None)
    assert kinds == [*["added"] * 30, *["removed"] * 20, "robots_changed"]
    only = await read_published(session, 1, kinds=frozenset({"removed"}))
    assert {one.kind for one in only.items} == {"removed"}
