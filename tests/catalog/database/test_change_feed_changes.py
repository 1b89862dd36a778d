"""Pages of the change feed: their order, their ends, and what they promise to a reader."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import update

from siteatlas.catalog import change_feed as changes
from siteatlas.catalog.change_feed import (
    ChangeView,
    FeedFilter,
    FeedPage,
    FeedPosition,
    changed_fields,
    list_changes,
    read_head,
)
from siteatlas.errors import CursorExpired, CursorInvalid, InputError
from siteatlas.storage.models import Domain, FeedHead
from siteatlas.storage.session import AsyncSession, Database, get_session
from tests.fixtures.changes import add_changes, add_event, add_published_scan, next_number
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap

ALL = FeedFilter()


async def every_event(
    session: AsyncSession, wanted: FeedFilter = ALL, *, limit: int = 1000
) -> list[ChangeView]:
    """All events of the feed, read page by page to its head."""
    events, cursor = list[ChangeView](), None
    while True:
        page = await list_changes(session, wanted, cursor=cursor, limit=limit)
        events += page.items
        cursor = page.next_cursor
        if page.at_head:
            return events


def brief(page: FeedPage) -> tuple[list[str], int, int, bool]:
    """What a page contains and covers."""
    return [event.kind for event in page.items], page.from_seq, page.to_seq, page.at_head


async def test_an_empty_feed_has_a_page_at_the_head_with_a_cursor(session: AsyncSession):
    page = await list_changes(session)
    assert brief(page) == ([], 1, 0, True)
    assert brief(await list_changes(session, cursor=page.next_cursor)) == ([], 1, 0, True)


async def test_events_are_ordered_by_number_then_events_then_sitemap_and_hash(
    session: AsyncSession,
):
    domain = await add_domain(session)
    first, second = sorted(
        [await add_sitemap(session, domain, f"{n}.xml") for n in range(2)], key=lambda s: s.id
    )
    later_scan = await add_published_scan(session, domain, published_seq=2)
    scan = await add_published_scan(session, domain, published_seq=1)
    await add_changes(session, later_scan, first, [1])
    await add_changes(session, scan, second, [5, -5])
    await add_changes(session, scan, first, [9])
    await add_event(session, domain, "sitemap_added", scan)
    await add_event(session, domain, "domain_forgotten")
    found = [
        (event.seq, event.kind, event.url and event.url.rpartition("/")[2])
        for event in await every_event(session)
    ]
    assert found == [
        (1, "sitemap_added", None),
        (1, "added", "9"),
        (1, "added", "-5"),
        (1, "added", "5"),
        (2, "added", "1"),
        (3, "domain_forgotten", None),
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
async def test_pages_of_any_size_have_the_same_events(session: AsyncSession, limit: int):
    domain = await add_domain(session)
    sitemaps = [await add_sitemap(session, domain, f"{n}.xml") for n in range(2)]
    for number in range(4):
        scan = await add_published_scan(session, domain)
        for sitemap in sitemaps:
            await add_event(session, domain, "baseline", scan, sitemap_id=sitemap.id)
            await add_changes(session, scan, sitemap, range(number))
        await add_event(session, domain, "scan_failed")
    ids = [event.id for event in await every_event(session, limit=limit)]
    assert len(ids) == len(set(ids)) == 4 * 2 + 2 * (0 + 1 + 2 + 3) + 4
    assert ids == [event.id for event in await every_event(session)]


async def test_a_page_says_which_numbers_it_completes(session: AsyncSession):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    await add_changes(session, await add_published_scan(session, domain), sitemap, [1])
    await add_changes(session, await add_published_scan(session, domain), sitemap, [1, 2, 3])
    first = await list_changes(session, limit=2)
    assert brief(first) == (["added"] * 2, 1, 1, False)
    middle = await list_changes(session, cursor=first.next_cursor, limit=1)
    assert brief(middle) == (["added"], 2, 1, False)
    last = await list_changes(session, cursor=middle.next_cursor, limit=2)
    assert brief(last) == (["added"], 2, 2, True)


async def test_a_page_is_bounded_in_bytes(session: AsyncSession, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("siteatlas.catalog.paging.MAX_PAGE_BYTES", 10_000)
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    scan = await add_published_scan(session, domain)
    await add_changes(session, scan, sitemap, range(10), after={"lastmod_text": "x" * 3000})
    assert len((await list_changes(session)).items) == 3
    assert len(await every_event(session)) == 10


async def test_scans_that_are_not_published_are_not_in_the_feed(session: AsyncSession):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    scan = await add_published_scan(session, domain, state="running", published_seq=None)
    await add_changes(session, scan, sitemap, [1])
    await add_event(session, domain, "sitemap_added", scan)
    assert await every_event(session) == []


async def test_the_feed_of_a_site_has_its_events_only(session: AsyncSession):
    domain, other = await add_domain(session), await add_domain(session, "other.example")
    for site in (domain, other, domain):
        sitemap = await add_sitemap(session, site, str(uuid4()))
        scan = await add_published_scan(session, site)
        await add_changes(session, scan, sitemap, [1])
        await add_event(session, site, "scan_failed")
    events = await every_event(session, FeedFilter(domain.id))
    assert [(event.domain, event.seq) for event in events] == [
        ("example.com", n) for n in (1, 2, 5, 6)
    ]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ({"removed"}, [10]),
        ({"baseline"}, [1]),
        ({"baseline", "added"}, [1, *range(10)]),
        ({"robots_changed"}, []),
    ],
)
async def test_a_filter_by_kind_examines_a_limited_number_of_rows_per_page(
    session: AsyncSession,
    monkeypatch: pytest.MonkeyPatch,
    kinds: set[str],
    expected: list[int],
):
    monkeypatch.setattr(changes, "MAX_EXAMINED", 3)
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    scan = await add_published_scan(session, domain)
    event = await add_event(session, domain, "baseline", scan)
    await add_changes(session, scan, sitemap, range(10))
    await add_changes(session, scan, sitemap, [10], kind="removed")
    found = await every_event(session, FeedFilter(kinds=frozenset(kinds)))
    of_urls = [int(change.url.rpartition("/")[2]) for change in found if change.url]
    of_event = [1 for change in found if change.id == f"event-{event.id}"]
    assert [*of_event, *of_urls] == expected


async def test_a_cursor_is_valid_with_another_filter(session: AsyncSession):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    scan = await add_published_scan(session, domain)
    await add_event(session, domain, "baseline", scan)
    await add_changes(session, scan, sitemap, [1, 2])
    inside = (await list_changes(session, limit=2)).next_cursor
    await add_event(session, domain, "scan_failed")
    events = FeedFilter(domain.id, frozenset({"baseline", "scan_failed"}))
    assert brief(await list_changes(session, events, cursor=inside)) == (
        ["scan_failed"],
        1,
        2,
        True,
    )


async def test_a_page_passes_a_limited_number_of_scans_without_changes(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "MAX_NUMBERS", 2)
    domain = await add_domain(session)
    scans = [await add_published_scan(session, domain) for _ in range(5)]
    await add_changes(session, scans[-1], await add_sitemap(session, domain), [1])
    assert brief(await list_changes(session)) == ([], 1, 2, False)
    assert len(await every_event(session)) == 1


async def test_a_reader_at_the_head_gets_only_what_is_published_later(session: AsyncSession):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    await add_changes(session, await add_published_scan(session, domain), sitemap, [1])
    page = await list_changes(session)
    await add_changes(session, await add_published_scan(session, domain), sitemap, [2])
    later = await list_changes(session, cursor=page.next_cursor)
    assert [event.seq for event in later.items] == [2]
    assert later.items == (await list_changes(session, after=1)).items


async def test_after_and_cursor_cannot_be_combined(session: AsyncSession):
    cursor = (await list_changes(session)).next_cursor
    with pytest.raises(InputError):
        await list_changes(session, after=0, cursor=cursor)


async def test_a_cursor_of_another_list_is_refused(session: AsyncSession):
    with pytest.raises(CursorInvalid):
        await list_changes(session, cursor="bm90aGluZw")


@pytest.mark.parametrize("position", [FeedPosition(4), FeedPosition(2, event_id=1)])
async def test_a_position_before_the_oldest_event_retained_is_expired(
    session: AsyncSession, position: FeedPosition
):
    for _ in range(6):
        await next_number(session)
    await session.execute(update(FeedHead).values(retained_from=5))
    head = await read_head(session)
    with pytest.raises(CursorExpired) as raised:
        await list_changes(session, cursor=position.cursor(head.feed_id))
    earliest = await list_changes(session, cursor=raised.value.earliest_cursor)
    assert (earliest.from_seq, earliest.retained_from) == (6, 5)
    with pytest.raises(CursorExpired):
        await list_changes(session, after=position.done)


@pytest.mark.parametrize("position", [FeedPosition(2), FeedPosition(1, entry=(uuid4(), 1))])
async def test_a_position_beyond_the_head_is_expired(session: AsyncSession, position: FeedPosition):
    await next_number(session)
    head = await read_head(session)
    with pytest.raises(CursorExpired, match="has only reached number 1"):
        await list_changes(session, cursor=position.cursor(head.feed_id))


async def test_a_cursor_of_another_feed_is_expired(session: AsyncSession):
    cursor = (await list_changes(session)).next_cursor
    await session.execute(update(FeedHead).values(feed_id=uuid4()))
    with pytest.raises(CursorExpired):
        await list_changes(session, cursor=cursor)


async def test_events_of_a_deleted_site_are_left_out_at_once_but_not_its_farewell(
    session: AsyncSession,
):
    domain = await add_domain(session)
    scan = await add_published_scan(session, domain)
    await add_changes(session, scan, await add_sitemap(session, domain), [1])
    await add_event(session, domain, "domain_forgotten")
    await session.execute(update(Domain).values(deleted_at=domain.created_at, domain="#1"))
    assert [(e.kind, e.domain) for e in await every_event(session)] == [
        ("domain_forgotten", "example.com")
    ]


async def test_a_change_names_its_sitemaps_and_has_the_same_id_every_time(session: AsyncSession):
    domain = await add_domain(session)
    old, new = (
        await add_sitemap(session, domain, "old.xml"),
        await add_sitemap(session, domain, "new.xml"),
    )
    scan = await add_published_scan(session, domain)
    await add_changes(session, scan, new, [-1], kind="moved", previous_sitemap_id=old.id)
    (moved,) = await every_event(session)
    assert (moved.sitemap, moved.previous_sitemap) == (new.url, old.url)
    assert moved.id == f"change-{scan.id}-{new.id.hex}-ffffffffffffffff"


async def test_head_and_events_are_of_one_moment(database: Database):
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
    async with get_session(snapshot=True) as reader:
        head = await read_head(reader)
        async with transaction() as session:
            await add_changes(session, await add_published_scan(session, domain), sitemap, [1])
        assert head.seq == 0
        assert brief(await list_changes(reader)) == ([], 1, 0, True)
    async with get_session(snapshot=True) as reader:
        assert brief(await list_changes(reader)) == (["added"], 1, 1, True)


def test_the_fields_of_a_change_are_those_that_differ():
    before = {"lastmod": "2025-01-01T00:00:00Z", "lastmod_text": "2025-01-01", "priority": 0.5}
    after = {"lastmod": "2025-01-02T00:00:00Z", "lastmod_text": "2025-01-02", "extras": {"a": 1}}
    assert changed_fields(before, after) == ["lastmod", "priority", "extras"]
    assert changed_fields(before, before) == changed_fields(None, after) == []
