"""The newest events: what is found within the limits, and whether others may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event, func, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog import change_feed as changes
from siteatlas.catalog import newest_changes as latest_changes
from siteatlas.catalog import paging as page_reading
from siteatlas.catalog.change_feed import FeedFilter, read_head
from siteatlas.catalog.newest_changes import LatestChanges
from siteatlas.storage.models import Domain
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.records import add_domain, add_sitemap

ALL = FeedFilter()
REMOVED = FeedFilter(kinds=frozenset({"removed"}))


async def publish(session: AsyncSession, scans: int, added: int, removed: int) -> None:
    """A site with scans that each have as many changes; those that were removed come last."""
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    counts = {"added": added, "removed": removed}
    for _ in range(scans):
        scan = await add_published_scan(session, domain, change_counts=counts)
        await add_changes(session, scan, sitemap, range(added))
        await add_changes(session, scan, sitemap, range(added, added + removed), kind="removed")


async def latest(session: AsyncSession, wanted: FeedFilter, limit: int = 100) -> LatestChanges:
    return await latest_changes.latest_changes(session, wanted, await read_head(session), limit)


@contextmanager
def counted_statements(session: AsyncSession) -> Iterator[list[str]]:
    """The statements that are executed meanwhile."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    engine = session.get_bind().engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def test_few_events_of_a_kind_are_found_behind_many_others_of_their_scan(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "MAX_EXAMINED", 4)
    await publish(session, scans=2, added=20, removed=3)
    found = await latest(session, REMOVED)
    assert [(one.event.seq, one.event.kind) for one in found.events] == [
        *[(2, "removed")] * 3,
        *[(1, "removed")] * 3,
    ]
    assert found.is_complete


async def test_rows_are_examined_up_to_one_limit_for_all_scans_together(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(latest_changes, "MAX_EXAMINED", 50)
    await publish(session, scans=5, added=20, removed=3)
    found = await latest(session, REMOVED)
    assert [one.event.seq for one in found.events] == [5] * 3 + [4] * 3
    assert not found.is_complete


async def test_as_many_events_as_asked_for_are_complete(session: AsyncSession):
    await publish(session, scans=5, added=2, removed=1)
    for limit in (1, 3, 4, 15, 16):
        found = await latest(session, ALL, limit)
        assert (len(found.events), found.is_complete) == (min(limit, 15), True)


async def test_a_scan_takes_one_statement(session: AsyncSession):
    await publish(session, scans=20, added=2, removed=1)
    with counted_statements(session) as statements:
        assert len((await latest(session, REMOVED)).events) == 20
    assert len(statements) <= 22


async def test_large_events_of_all_scans_together_end_at_the_size_of_a_page(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(page_reading, "MAX_PAGE_BYTES", 2_000)
    await publish(session, scans=20, added=2, removed=0)
    found = await latest(session, ALL)
    assert 2 < len(found.events) < 20
    assert not found.is_complete


async def test_scans_that_were_not_examined_make_the_events_incomplete(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    await publish(session, scans=4, added=1, removed=0)
    for examined, events, is_complete in [(3, 3, False), (4, 4, True)]:
        monkeypatch.setattr(latest_changes, "MAX_SCANS", examined)
        found = await latest(session, ALL)
        assert (len(found.events), found.is_complete) == (events, is_complete)


async def test_scans_beyond_the_newest_events_do_not_make_them_incomplete(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(latest_changes, "MAX_SCANS", 3)
    await publish(session, scans=4, added=1, removed=0)
    assert (await latest(session, ALL, 3)).is_complete


async def test_events_behind_scans_that_were_not_examined_are_incomplete(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(latest_changes, "MAX_SCANS", 3)
    await add_event(session, await add_domain(session, "other.example"), "scan_failed")
    await publish(session, scans=4, added=1, removed=0)
    found = await latest(session, ALL, 4)
    assert [one.event.seq for one in found.events] == [5, 4, 3, 1]
    assert not found.is_complete


async def test_only_scans_of_the_wanted_sites_count_as_not_examined(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(latest_changes, "MAX_SCANS", 2)
    await publish(session, scans=3, added=1, removed=0)
    other = await add_domain(session, "other.example")
    assert (await latest(session, FeedFilter(domain_id=other.id))).is_complete
    assert (await latest(session, FeedFilter(tag="shop"))).is_complete
    await session.execute(update(Domain).values(deleted_at=func.now()))
    assert (await latest(session, ALL)).is_complete


async def test_scans_of_a_deleted_site_do_not_take_the_place_of_others(session: AsyncSession):
    await publish(session, scans=1, added=2, removed=0)
    gone = await add_domain(session, "gone.example", deleted_at=func.now())
    sitemap = await add_sitemap(session, gone)
    for _ in range(3):
        await add_changes(session, await add_published_scan(session, gone), sitemap, [1])
    found = await latest(session, ALL, 2)
    assert [one.event.domain for one in found.events] == ["example.com"] * 2
    assert found.is_complete
