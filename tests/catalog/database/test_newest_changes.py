"""Lists of what was published last look at a bounded number of scans, and say where to go on."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog import newest_changes as newest_numbers
from siteatlas.catalog.newest_changes import list_published
from siteatlas.catalog.overview import latest_scans_with_changes
from siteatlas.storage.models import Domain
from tests.fixtures.changes import add_event, add_published_scan
from tests.fixtures.records import add_domain, every_page

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
