"""Old data is deleted in small batches; the newest scans of a site stay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import delete, func, insert, select, update

from siteatlas.catalog.scans import _start_over, open_scan
from siteatlas.errors import DatabaseBusy
from siteatlas.queue import retention
from siteatlas.queue.retention import (
    Retention,
    prune_jobs,
    prune_removed_urls,
    prune_unrequested_documents,
)
from siteatlas.scheduler.sitemap_scheduler import prune
from siteatlas.settings import Settings
from siteatlas.storage.models import (
    LOCAL_USER_ID,
    Batch,
    BatchItem,
    Domain,
    Job,
    Scan,
    ScanScope,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapUrl,
)
from siteatlas.storage.session import get_background_session
from tests.fixtures.database import is_lock_awaited
from tests.fixtures.pipeline import rows_of
from tests.fixtures.queue import submit
from tests.fixtures.records import add_domain, add_job, add_scan, add_sitemap, add_urls
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")
NOW = datetime.now(UTC)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


async def site_with_scans(ages: Sequence[float], status: str = "completed") -> UUID:
    """A site that was scanned so many days ago, three documents each time."""
    async with get_background_session() as session, session.begin():
        domain = await add_domain(session)
        documents = [await add_sitemap(session, domain, f"{n}.xml") for n in range(3)]
        for age in ages:
            job = await add_job(session, domain, status=status, finished_at=days_ago(age))
            state = "published" if status == "completed" else status
            scan = await add_scan(session, domain, job, state=state, finished_at=days_ago(age))
            await session.execute(
                insert(SitemapScan),
                [
                    {"scan_id": scan.id, "sitemap_id": document.id, "state": "complete"}
                    for document in documents
                ],
            )
        return domain.id


async def numbers_of(*tables: type[Any]) -> list[int]:
    return [len(await rows_of(table)) for table in tables]


async def test_scans_go_with_their_jobs_but_for_the_newest_of_a_site() -> None:
    await site_with_scans([100 - n for n in range(20)] + [3, 2, 1])
    await prune(Retention(scans=5))
    assert await numbers_of(Job, Scan, SitemapScan) == [3, 5, 15]
    assert sorted(scan.id for scan in await rows_of(Scan)) == [19, 20, 21, 22, 23]


async def test_scans_younger_than_their_jobs_are_kept_stay_however_many() -> None:
    await site_with_scans([29 - n / 10 for n in range(20)])
    await prune(Retention(scans=5))
    assert await numbers_of(Job, Scan, SitemapScan) == [20, 20, 60]


async def test_scans_that_outlived_their_jobs_go_when_newer_ones_are_old_enough() -> None:
    await site_with_scans([80, 70, 60, 50, 40])
    async with get_background_session() as session, session.begin():
        await session.execute(delete(Job).where(Job.id <= 4))
    await prune(Retention(scans=1))
    assert await numbers_of(Job, Scan, SitemapScan) == [0, 1, 3]


@pytest.mark.parametrize(("status", "kept"), [("completed", 1), ("failed", 2), ("cancelled", 2)])
async def test_failed_and_cancelled_jobs_are_kept_longer(status: str, kept: int) -> None:
    await site_with_scans([100, 60, 20], status)
    await prune()
    assert await numbers_of(Job) == [kept]


async def test_the_operator_says_how_long() -> None:
    await site_with_scans([5, 3, 1])
    settings = Settings(keep_completed_jobs_days=2, keep_scans=1)
    await prune(Retention.of(settings))
    assert await numbers_of(Job, Scan) == [1, 1]


async def test_a_batch_is_small_however_much_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_BATCH", 10)
    await site_with_scans([100 - n for n in range(20)])
    removed = []
    while True:
        async with get_background_session() as session, session.begin():
            removed.append(await prune_jobs(session, Retention(scans=1)))
        if not removed[-1]:
            break
    assert removed == [10, 10, 10, 10, 10, 7, 39, 0]
    assert await numbers_of(Job, Scan, SitemapScan) == [0, 1, 3]


async def test_old_batches_go_with_their_items() -> None:
    async with get_background_session() as session, session.begin():
        for age in (100, 10, None):
            finished = None if age is None else days_ago(age)
            job = await add_job(session, status="pending" if age is None else "completed")
            batch = Batch(total=2, created_by=LOCAL_USER_ID, finished_at=finished)
            session.add(batch)
            await session.flush()
            items = [BatchItem(batch_id=batch.id, position=n, domain="a") for n in range(2)]
            items[0].job_id = job.id
            session.add_all(items)
    await prune()
    assert await numbers_of(Batch, BatchItem) == [2, 4]


async def add_never_asked(domain_id: UUID, count: int) -> None:
    async with get_background_session() as session, session.begin():
        domain = (await session.execute(select(Domain).where(Domain.id == domain_id))).scalar_one()
        parent = await add_sitemap(session, domain, "parent.xml", type="index")
        job = await add_job(session, domain, status="cancelled", finished_at=days_ago(1))
        scan = await add_scan(session, domain, job, state="cancelled", finished_at=days_ago(1))
        for n in range(count):
            child = await add_sitemap(
                session,
                domain,
                f"child-{n}.xml",
                type=None,
                status="pending",
                created_at=days_ago(1),
            )
            session.add(SitemapLink(parent_id=parent.id, child_id=child.id))
            session.add(SitemapScan(scan_id=scan.id, sitemap_id=child.id))


async def test_documents_that_no_scan_asked_for_are_removed_with_their_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "DOCUMENTS_PER_BATCH", 7)
    domain_id = await site_with_scans([1])
    await add_never_asked(domain_id, 20)
    async with get_background_session() as session, session.begin():
        assert await prune_unrequested_documents(session) == 7
    await prune()
    assert await numbers_of(Sitemap, SitemapLink, SitemapScan) == [4, 0, 3]


async def test_documents_of_a_site_with_an_active_job_are_left_to_it() -> None:
    domain_id = await site_with_scans([1])
    await add_never_asked(domain_id, 5)
    async with get_background_session() as session, session.begin():
        domain = (await session.execute(select(Domain).where(Domain.id == domain_id))).scalar_one()
        await add_job(session, domain, status="processing")
    await prune()
    async with get_background_session() as session, session.begin():
        left = select(func.count()).where(Sitemap.status == "pending")
        assert (await session.execute(left)).scalar_one() == 5


async def test_a_scan_that_was_restarted_meanwhile_is_not_deleted() -> None:
    await site_with_scans([80, 70, 60], status="failed")
    async with get_background_session() as session, session.begin():
        await session.execute(delete(SitemapScan))
        await session.execute(update(Job).values(finished_at=days_ago(100)))
        await session.execute(
            update(Job).where(Job.id == 1).values(status="processing", finished_at=None)
        )
    async with get_background_session() as worker, worker.begin():
        domain_id = (await worker.scalars(select(Domain.id))).one()
        assert await open_scan(worker, job_id=1, domain_id=domain_id, max_pages=None) == (1, False)
        pruning = asyncio.create_task(prune(Retention(scans=1)))
        await wait_until(is_lock_awaited)
    await pruning
    assert {scan.id: scan.state for scan in await rows_of(Scan)} == {1: "running", 3: "failed"}


async def test_a_scan_that_retention_has_removed_is_not_restarted() -> None:
    async with get_background_session() as session, session.begin():
        with pytest.raises(DatabaseBusy):
            await _start_over(session, 1, ScanScope.FULL)


async def add_removed_urls(names: Sequence[str], urls: int) -> None:
    """Sites whose URLs were removed two years ago."""
    async with get_background_session() as session, session.begin():
        for name in names:
            document = await add_sitemap(session, await add_domain(session, name), "sitemap.xml")
            pages = [(number, f"https://{name}/{number}") for number in range(urls)]
            await add_urls(session, document.id, pages)
        await session.execute(update(SitemapUrl).values(removed_at=days_ago(730)))


async def prune_urls() -> int:
    async with get_background_session() as session, session.begin():
        return await prune_removed_urls(session, 365)


async def test_removed_urls_of_many_sites_are_pruned_in_one_batch() -> None:
    await add_removed_urls([f"site-{number}.example" for number in range(60)], 2)
    assert await prune_urls() == 120
    assert await prune_urls() == 0


async def test_removed_urls_of_a_site_with_a_job_or_a_lock_wait_and_hold_up_no_other() -> None:
    await add_removed_urls(["busy.example", "locked.example", "idle.example"], 2)
    await submit("https://busy.example")
    async with get_background_session() as session, session.begin():
        locked = select(Domain.id).where(Domain.domain == "locked.example").with_for_update()
        await session.execute(locked)
        assert await prune_urls() == 2
        assert await prune_urls() == 0
    assert await prune_urls() == 2
