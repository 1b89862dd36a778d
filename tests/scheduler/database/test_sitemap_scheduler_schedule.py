"""When watched sites are scanned: at their time, whatever the tick, and not again after a scan."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from siteatlas.catalog.domains import change_domain, find_domain
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.submission import BatchEntry, create_batch
from siteatlas.scheduler.outages import DueClock
from siteatlas.scheduler.sitemap_scheduler import SitemapScheduler, enqueue_due_domains
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID, Domain, Job
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import (
    pages,
    rows_of,
    scan_server,
    settings_for,
    submit_server,
    urlset,
    work,
)
from tests.fixtures.queue import submit
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until
from tests.fixtures.watched_sites import SITE, cancel_job, hours_until_next, watch

pytestmark = pytest.mark.usefixtures("database")


async def change(**changes: Any) -> None:
    async with get_background_session() as session, session.begin():
        domain = await find_domain(session, SITE, lock=True)
        assert domain is not None
        await change_domain(session, domain, **changes)


def completed(jobs: int) -> Any:
    async def look() -> bool:
        return sum(job.status == "completed" for job in await rows_of(Job)) == jobs

    return look


async def test_a_site_is_scanned_at_its_time_and_not_only_at_the_next_tick() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await watch(server.base, due_in=2)
        (domain,) = await rows_of(Domain)
        settings = settings_for(server, scheduler_interval_minutes=60)
        scheduler = SitemapScheduler(settings, EgressPolicy.from_text(settings.egress_allow))
        await scheduler.start()
        try:
            await wait_until(completed(1))
        finally:
            await scheduler.shutdown()
    (job,) = await rows_of(Job)
    assert domain.next_scan_at is not None
    assert job.created_at >= domain.next_scan_at


async def test_a_site_that_becomes_due_is_noticed_when_the_scheduler_is_notified() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await watch(server.base, due_in=3600)
        settings = settings_for(server, scheduler_interval_minutes=60)
        scheduler = SitemapScheduler(settings, EgressPolicy.from_text(settings.egress_allow))
        await scheduler.start()
        try:
            await asyncio.sleep(0.5)
            assert await rows_of(Job) == []
            await watch(server.base, due_in=0)
            scheduler.reschedule()
            await wait_until(completed(1))
        finally:
            await scheduler.shutdown()
    (job,) = await rows_of(Job)
    (domain,) = await rows_of(Domain)
    assert job.result_data is not None
    assert (job.domain_id, job.result_data["url_count"]) == (domain.id, 3)


async def test_a_site_that_another_process_is_taking_is_not_asked_for_without_pause() -> None:
    await watch(due_in=-1)
    rounds = 0

    async def enqueue_due() -> None:
        nonlocal rounds
        rounds += 1
        await enqueue_due_domains(Settings())

    async with get_background_session() as session, session.begin():
        await session.execute(select(Domain).with_for_update())
        clock = DueClock(enqueue_due)
        ticking = asyncio.create_task(clock.run())
        for _ in range(25):
            clock.look()
            await asyncio.sleep(0.1)
        assert 1 <= rounds <= 3
        assert await rows_of(Job) == []
    await wait_until(lambda: _has_jobs(1))
    ticking.cancel()


async def _has_jobs(number: int) -> bool:
    return len(await rows_of(Job)) == number


async def test_every_due_site_is_queued_however_small_the_batches_are() -> None:
    for number in range(7):
        await watch(f"site-{number}.example", due_in=-number)
    assert await enqueue_due_domains(Settings(scheduler_batch_size=3)) == 7
    assert len(await rows_of(Job)) == 7


async def test_the_default_interval_of_the_settings_separates_scheduled_scans() -> None:
    await watch(due_in=-1)
    await enqueue_due_domains(Settings(scan_interval_hours=2))
    assert await hours_until_next() == pytest.approx(2, abs=0.1)


async def test_a_new_interval_counts_from_the_last_scan() -> None:
    last = func.now() - timedelta(hours=2)
    await watch(due_in=22 * 3600, last_scan_at=last)
    await change(scan_interval_hours=6)
    assert await hours_until_next() == pytest.approx(4, abs=0.1)


async def test_a_new_interval_that_has_passed_already_makes_the_site_due_now() -> None:
    await watch(due_in=22 * 3600, last_scan_at=func.now() - timedelta(hours=2))
    await change(scan_interval_hours=1)
    assert await hours_until_next() == pytest.approx(0, abs=0.1)
    assert await enqueue_due_domains(Settings()) == 1


async def test_a_new_interval_counts_from_now_before_the_first_scan() -> None:
    await watch(due_in=22 * 3600)
    await change(scan_interval_hours=6)
    assert await hours_until_next() == pytest.approx(6, abs=0.1)


async def test_only_a_site_that_was_not_watched_becomes_due_by_watching_it() -> None:
    await watch(due_in=3600)
    await change(watched=True, paused=False)
    assert await hours_until_next() == pytest.approx(1, abs=0.1)
    await change(watched=False)
    assert await hours_until_next() is None
    await change(watched=True, scan_interval_hours=6)
    assert await hours_until_next() == pytest.approx(0, abs=0.1)


async def test_an_unchanged_interval_leaves_the_time_of_the_next_scan() -> None:
    await watch(due_in=3600, scan_interval_hours=6)
    await change(watched=True, scan_interval_hours=6)
    assert await hours_until_next() == pytest.approx(1, abs=0.1)


async def test_the_default_interval_counts_from_the_last_scan_too() -> None:
    last = func.now() - timedelta(hours=2)
    await watch(due_in=3600, scan_interval_hours=3, last_scan_at=last)
    await change(scan_interval_hours=None, default_interval_hours=12)
    assert await hours_until_next() == pytest.approx(10, abs=0.1)


async def test_an_interval_does_not_make_an_unwatched_site_due() -> None:
    await submit(SITE)
    await change(scan_interval_hours=6)
    assert await hours_until_next() is None


async def test_a_scan_by_hand_counts_as_a_scan_when_it_is_published() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await watch(server.base, due_in=60, scan_interval_hours=6)
        await submit_server(server)
        assert await hours_until_next(server.host_port) == pytest.approx(0, abs=0.1)
        await work(settings_for(server))
        assert await hours_until_next(server.host_port) == pytest.approx(6, abs=0.1)


async def test_a_scan_in_a_batch_counts_as_a_scan() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await watch(server.base, due_in=60)
        entries = [BatchEntry(server.base, parse_site(server.base))]
        async with get_background_session() as session, session.begin():
            await create_batch(session, entries, created_by=LOCAL_USER_ID, max_pages=None)
        await work(settings_for(server, scan_interval_hours=3))
        assert await hours_until_next(server.host_port) == pytest.approx(3, abs=0.1)


async def test_a_scheduled_scan_leaves_the_time_that_the_schedule_has_set() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await watch(server.base, due_in=-1)
        assert await enqueue_due_domains(Settings()) == 1
        (before,) = [site.next_scan_at for site in await rows_of(Domain)]
        await work(settings_for(server))
    assert await completed(1)()
    assert [site.next_scan_at for site in await rows_of(Domain)] == [before]


@pytest.mark.parametrize(
    ("limit", "site_limit", "hours"), [(2, None, 1), (2, 3, 1), (2, 2, 24), (5, None, 24)]
)
async def test_a_scan_that_stopped_at_a_limit_below_that_of_the_site_does_not_count(
    limit: int, site_limit: int | None, hours: int
) -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 5))}) as server:
        await watch(server.base, due_in=3600, max_pages=site_limit)
        await scan_server(server, max_pages=limit)
        assert await completed(1)()
        assert await hours_until_next(server.host_port) == pytest.approx(hours, abs=0.1)


async def test_a_cancelled_scan_by_hand_does_not_delay_the_next_one() -> None:
    await watch(due_in=3600)
    submitted = await submit(SITE)
    await cancel_job(submitted.id)
    assert await hours_until_next() == pytest.approx(1, abs=0.1)


async def test_a_failed_scan_by_hand_does_not_delay_the_next_one() -> None:
    async with SiteServer() as server:
        await watch(server.base, due_in=3600)
        job = await scan_server(server, max_attempts=1)
        assert job.status == "failed"
        assert await hours_until_next(server.host_port) == pytest.approx(1, abs=0.1)


async def test_watching_a_site_again_does_not_delay_its_next_scan() -> None:
    await watch(due_in=3600)
    await submit(SITE, watch=True)
    assert await hours_until_next() == pytest.approx(1, abs=0.1)


async def test_a_due_site_is_not_scanned_again_after_the_job_of_a_user() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await watch(server.base, due_in=-1)
        await scan_server(server)
        assert await enqueue_due_domains(Settings()) == 0
        assert await hours_until_next(server.host_port) == pytest.approx(24, abs=0.1)
    assert len(await rows_of(Job)) == 1


async def test_a_due_site_whose_scheduled_job_is_still_active_is_next_due_after_its_interval() -> (
    None
):
    await watch(due_in=-1)
    await enqueue_due_domains(Settings())
    await watch(due_in=-1)
    await enqueue_due_domains(Settings())
    assert await hours_until_next() == pytest.approx(24, abs=0.1)
    assert len(await rows_of(Job)) == 1


async def test_a_scan_by_hand_of_an_unwatched_site_plans_no_other() -> None:
    await submit(SITE)
    await submit(SITE)
    assert await hours_until_next() is None


async def test_reading_a_single_document_does_not_count_as_a_scan() -> None:
    await watch(due_in=3600)
    await submit(SITE, document="https://example.com/a.xml")
    assert await hours_until_next() == pytest.approx(1, abs=0.1)
