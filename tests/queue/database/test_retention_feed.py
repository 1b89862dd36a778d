"""Old events leave the change feed without a hole for its readers, and removed URLs go at last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from siteatlas.catalog.change_feed import list_changes
from siteatlas.errors import CursorExpired
from siteatlas.queue import retention as feed_retention
from siteatlas.queue.operator_actions import remove_domain_and_jobs
from siteatlas.queue.retention import Retention, prune_feed, raise_retained_from
from siteatlas.scheduler.sitemap_scheduler import prune
from siteatlas.storage.models import (
    Candidate,
    Domain,
    FeedEvent,
    FeedHead,
    Job,
    RobotsFile,
    Scan,
    SitemapUrl,
    UrlChange,
)
from siteatlas.storage.session import get_background_session
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import rows_of
from tests.fixtures.records import add_candidate, add_domain, add_job, add_sitemap, add_urls

pytestmark = pytest.mark.usefixtures("database")
NOW = datetime.now(UTC)
KEEP = Retention(change_days=90, scans=1)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


async def site_with_changes(*ages: float) -> Domain:
    """A site that was scanned so many days ago, with five changes and an event each time."""
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        for age in ages:
            scan = await add_published_scan(session, domain, finished_at=days_ago(age))
            await add_changes(session, scan, sitemap, range(5))
            await add_event(session, domain, "sitemap_added", scan)
        return domain


async def forget_jobs() -> None:
    async with transaction() as session:
        await session.execute(delete(Job))


async def numbers_of(*tables: type[Any]) -> list[int]:
    return [len(await rows_of(table)) for table in tables]


async def head() -> tuple[int, int, int]:
    async with transaction() as session:
        statement = select(FeedHead.seq, FeedHead.retained_from, FeedHead.pruned_to)
        seq, retained_from, pruned_to = (await session.execute(statement)).one()
        return seq, retained_from, pruned_to


async def test_events_are_kept_for_a_time_and_the_feed_says_from_where_on() -> None:
    await site_with_changes(100, 95, 50, 1)
    await prune(KEEP)
    assert await numbers_of(UrlChange, FeedEvent) == [10, 2]
    assert await head() == (4, 2, 2)
    async with transaction() as session:
        assert [event.seq for event in (await list_changes(session)).items][::6] == [3, 4]
        with pytest.raises(CursorExpired):
            await list_changes(session, after=1)


async def test_a_young_event_keeps_all_that_follow_it() -> None:
    await site_with_changes(100, 10, 95)
    await prune(KEEP)
    assert await head() == (3, 1, 1)


async def test_nothing_is_deleted_before_the_feed_says_so() -> None:
    await site_with_changes(100, 1)
    async with get_background_session() as session, session.begin():
        assert await prune_feed(session, 90, 1) == 0
    async with get_background_session() as session, session.begin():
        assert await raise_retained_from(session, 90) == 1
        assert await raise_retained_from(session, 90) == 0
    assert await numbers_of(UrlChange) == [10]
    assert await head() == (2, 1, 0)


async def test_a_batch_is_small_however_many_changes_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed_retention, "ROWS_PER_BATCH", 4)
    await site_with_changes(100, 99, 1)
    async with get_background_session() as session, session.begin():
        await raise_retained_from(session, 90)
    removed: list[int] = []
    while not removed or removed[-1]:
        async with get_background_session() as session, session.begin():
            removed.append(await prune_feed(session, 90, 1))
    assert removed == [4, 4, 2, 2, 1, 0]
    assert await head() == (3, 2, 2)


async def test_many_scans_are_pruned_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_retention, "SCANS_PER_BATCH", 2)
    await site_with_changes(*range(105, 100, -1), 1)
    await prune(KEEP)
    assert (await head(), await numbers_of(UrlChange)) == ((6, 5, 5), [5])


async def test_events_with_a_number_of_their_own_go_with_the_others() -> None:
    domain = await site_with_changes(100)
    async with transaction() as session:
        for age in (95, 20):
            await add_event(session, domain, "scan_failed", created_at=days_ago(age))
    await prune(KEEP)
    assert [event.seq for event in await rows_of(FeedEvent)] == [3]
    assert await head() == (3, 2, 2)


async def test_scans_stay_while_the_feed_has_their_events_and_go_with_them() -> None:
    domain = await site_with_changes(100, 80, 60, 1)
    async with transaction() as session:
        first, *_ = await rows_of(Scan)
        await add_candidate(session, domain, "old", scan_id=first.id)
        await add_candidate(session, domain, "new", scan_id=first.id + 3)
    await forget_jobs()
    await prune(KEEP)
    assert [scan.published_seq for scan in await rows_of(Scan)] == [2, 3, 4]
    assert [place.url for place in await rows_of(Candidate)] == ["https://example.com/new"]


async def test_a_pruned_job_leaves_its_scan_to_the_feed() -> None:
    await site_with_changes(60, 50, 1)
    async with transaction() as session:
        await session.execute(update(Job).values(status="completed", finished_at=days_ago(45)))
    await prune(KEEP)
    assert await numbers_of(Job, Scan, UrlChange) == [0, 3, 15]


async def test_changes_that_wait_for_a_publication_keep_their_scan() -> None:
    domain = await site_with_changes(1)
    async with transaction() as session:
        sitemap = await add_sitemap(session, domain, "other.xml")
        for state in ("failed", "cancelled", "published"):
            scan = await add_published_scan(
                session, domain, state=state, published_seq=None, finished_at=days_ago(200)
            )
            if state == "failed":
                await add_changes(session, scan, sitemap, [1])
        await session.execute(update(Job).values(status="failed", finished_at=days_ago(200)))
    await prune(KEEP)
    assert [scan.state for scan in await rows_of(Scan)] == ["published", "failed", "published"]


async def test_texts_of_robots_txt_go_with_the_events_about_them() -> None:
    async with transaction() as session:
        domain = await add_domain(session)
        for age, text in ((100, "a"), (95, "b"), (1, "c")):
            scan = await add_published_scan(session, domain, finished_at=days_ago(age))
            await add_event(session, domain, "robots_changed", scan)
            values = {"content": text, "content_hash": text, "last_seen_at": days_ago(age)}
            session.add(RobotsFile(domain_id=domain.id, origin="https://a.example", **values))
            await session.flush()
    await prune(KEEP)
    assert [row.content for row in await rows_of(RobotsFile)] == ["c"]


@pytest.mark.parametrize("job_status", ["completed", "processing"])
async def test_removed_urls_go_after_a_year_unless_their_site_is_being_scanned(
    job_status: str,
) -> None:
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        for key, age in enumerate((400, 100, None)):
            removed_at = None if age is None else days_ago(age)
            await add_urls(session, sitemap.id, [(key, f"https://a/{key}")], removed_at=removed_at)
        await add_job(session, domain, status=job_status)
    await prune(KEEP)
    kept = sorted(url.url_hash for url in await rows_of(SitemapUrl))
    assert kept == ([1, 2] if job_status == "completed" else [0, 1, 2])


async def test_the_changes_of_a_deleted_site_go_but_not_its_last_event() -> None:
    await site_with_changes(3, 2)
    async with transaction() as session:
        domain = (await session.scalars(select(Domain))).one()
        session.add(
            RobotsFile(domain_id=domain.id, origin="https://a", content="", content_hash="")
        )
        await add_event(session, domain, "domain_forgotten")
        await session.execute(delete(Job))
        await remove_domain_and_jobs(session, "example.com")
    await prune(KEEP)
    assert await numbers_of(Domain, Scan, UrlChange, RobotsFile) == [0, 0, 0, 0]
    assert {event.kind for event in await rows_of(FeedEvent)} == {"domain_forgotten"}
