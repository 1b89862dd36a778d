"""The scheduler: finds waiting jobs, isolates them, and enqueues what is due exactly once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select, text, update
from structlog.testing import capture_logs

from siteatlas.catalog.domains import delete_domain, find_domain, register_domain
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.views import any_worker_alive
from siteatlas.scheduler.sitemap_scheduler import (
    SitemapScheduler,
    enqueue_due_domains,
    process_pending_sitemaps,
    prune,
)
from siteatlas.settings import Settings
from siteatlas.storage.models import (
    LOCAL_USER_ID,
    SYSTEM_USER_ID,
    Domain,
    Job,
    SitemapUrl,
    Worker,
)
from siteatlas.storage.session import BACKGROUND_LIMITS, get_background_session
from tests.fixtures.pipeline import (
    pages,
    rows_of,
    scan_server,
    settings_for,
    submit_server,
    urlset,
    work,
)
from tests.fixtures.queue import job_of, submit
from tests.fixtures.records import add_domain
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")


async def watch(*sites: str, due_in: timedelta = timedelta(seconds=-1)) -> None:
    async with get_background_session() as session, session.begin():
        for site in sites:
            await register_domain(session, parse_site(site), created_by=LOCAL_USER_ID, watch=True)
        await session.execute(update(Domain).values(next_scan_at=func.now() + due_in))


async def has_status(job_id: int, status: str) -> bool:
    return (await job_of(job_id)).status == status


async def execute(statement: str) -> None:
    async with get_background_session() as session, session.begin():
        await session.execute(text(statement))


async def any_worker() -> bool:
    return bool(await rows_of(Worker))


@pytest.mark.criterion("pending-detected", "processor-called", "failures-isolated", "errors-logged")
async def test_ten_jobs_of_which_three_fail_in_different_ways_leave_seven_completed() -> None:
    good = [SiteServer({"/sitemap.xml": urlset(pages("a", 5))}) for _ in range(7)]
    empty, broken = SiteServer(), SiteServer({"/robots.txt": "Sitemap: {base}/x.xml"})
    broken.pages["/x.xml"] = "<html>no</html>"
    servers = [*good, empty, broken]
    for server in servers:
        await server.start()
    jobs = [await submit_server(server) for server in servers]
    async with get_background_session() as session, session.begin():
        session.add(Job(created_by=LOCAL_USER_ID, result_data={"max_pages": 1}))
    report = await work(settings_for(*servers))
    for server in servers:
        await server.stop()
    assert report.found == 10
    assert [(await job_of(job.id)).status for job in jobs[:7]] == ["completed"] * 7
    failed = [job for job in await rows_of(Job) if job.status == "failed"]
    assert len(failed) == 3
    assert len({job.error_code for job in failed}) == 3


@pytest.mark.criterion("scheduler-runs")
async def test_an_empty_queue_is_looked_at_and_left() -> None:
    report = await process_pending_sitemaps(10, settings=Settings(), policy=EgressPolicy())
    assert (report.looked_for, report.found, report.outcomes) == (10, 0, {})


@pytest.mark.criterion("pending-detected", "efficient")
async def test_the_limit_of_a_tick_is_kept() -> None:
    site = {"/sitemap.xml": urlset(pages("a", 1))}
    async with SiteServer(site) as one, SiteServer(site) as two:
        await submit_server(one)
        await submit_server(two)
        report = await work(settings_for(one, two), limit=1)
    assert report.found == 1
    assert sorted(job.status for job in await rows_of(Job)) == ["completed", "pending"]


@pytest.mark.criterion("owner-is-a-user", "due-domains")
async def test_a_due_site_is_enqueued_as_the_system_and_moved_to_its_next_time() -> None:
    await watch("example.com")
    assert await enqueue_due_domains(Settings()) == 1
    (job,) = await rows_of(Job)
    assert (job.status, job.priority, job.created_by) == ("pending", 9, SYSTEM_USER_ID)
    (domain,) = await rows_of(Domain)
    assert domain.next_scan_at is not None
    assert timedelta(hours=23) < domain.next_scan_at - job.created_at < timedelta(hours=25)


@pytest.mark.criterion("due-domains")
async def test_ten_schedulers_at_once_enqueue_each_due_site_once() -> None:
    sites = [f"site-{number}.example.com" for number in range(15)]
    await watch(*sites)
    counts = await asyncio.gather(*(enqueue_due_domains(Settings()) for _ in range(10)))
    assert sum(counts) == 15
    assert len(await rows_of(Job)) == 15


@pytest.mark.criterion("due-domains")
async def test_a_site_that_is_not_due_paused_or_deleted_is_left_alone() -> None:
    await watch("later.example.com", due_in=timedelta(hours=1))
    await watch("paused.example.com", "deleted.example.com")
    async with get_background_session() as session, session.begin():
        await session.execute(
            update(Domain)
            .where(Domain.domain == "later.example.com")
            .values(next_scan_at=func.now() + timedelta(hours=1))
        )
        paused = await find_domain(session, "paused.example.com")
        deleted = await find_domain(session, "deleted.example.com")
        assert paused is not None
        assert deleted is not None
        paused.paused = True
        await delete_domain(session, deleted)
    assert await enqueue_due_domains(Settings()) == 0


async def test_a_due_site_whose_job_is_locked_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BACKGROUND_LIMITS, "lock_timeout", "200ms")
    waiting = await submit("https://a.example.com/a.xml", document="https://a.example.com/a.xml")
    await watch("a.example.com")
    await watch("b.example.com", "c.example.com")
    async with get_background_session() as other, other.begin():
        await other.execute(select(Job).where(Job.id == waiting.id).with_for_update())
        assert await enqueue_due_domains(Settings()) == 2
    assert {job.dedup_key for job in await rows_of(Job)} == {
        "a.example.com",
        "b.example.com",
        "c.example.com",
    }
    (locked,) = [site for site in await rows_of(Domain) if site.domain == "a.example.com"]
    assert locked.next_scan_at is not None
    assert timedelta() < locked.next_scan_at - datetime.now(UTC) <= timedelta(minutes=1)
    await watch("a.example.com")
    await enqueue_due_domains(Settings())
    assert (await job_of(waiting.id)).job_metadata["document"] is None  # type: ignore[index]


@pytest.mark.criterion("apscheduler", "interval", "pending-detected")
async def test_a_woken_scheduler_takes_a_job_without_waiting_for_its_tick() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        settings = settings_for(server)
        scheduler = SitemapScheduler(settings, EgressPolicy.from_text(settings.egress_allow))
        await scheduler.start()
        await asyncio.sleep(0.3)
        submitted = await submit_server(server)
        scheduler.wake()
        await wait_until(lambda: has_status(submitted.id, "completed"), seconds=5)
        assert scheduler.next_tick_at is not None
        await scheduler.shutdown()


@pytest.mark.criterion("scheduler-runs")
async def test_a_running_scheduler_is_in_the_registry_and_leaves_it_when_it_stops() -> None:
    scheduler = SitemapScheduler(Settings(), EgressPolicy())
    await scheduler.start()
    await wait_until(any_worker)
    assert [worker.id for worker in await rows_of(Worker)] == [scheduler.worker_id]
    await scheduler.shutdown()
    async with get_background_session() as session, session.begin():
        assert not await any_worker_alive(session)


async def test_a_process_with_long_leases_reports_no_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("siteatlas.scheduler.consumer.REPORT_SECONDS", 0.05)
    scheduler = SitemapScheduler(Settings(lease_seconds=3600), EgressPolicy())
    await scheduler.start()
    await wait_until(any_worker)
    (first,) = await rows_of(Worker)

    async def seen_again() -> bool:
        return (await rows_of(Worker))[0].last_seen_at > first.last_seen_at

    await wait_until(seen_again)
    (again,) = await rows_of(Worker)
    await scheduler.shutdown()
    assert (again.id, again.started_at) == (scheduler.worker_id, first.started_at)
    assert again.last_seen_at > first.last_seen_at


@pytest.mark.criterion("scheduler-runs")
async def test_shutdown_releases_unfinished_jobs_at_once() -> None:
    never = asyncio.Event()

    async def hanging(_request: object) -> str:
        await never.wait()
        return ""

    async with SiteServer({"/robots.txt": hanging}) as server:
        settings = settings_for(server)
        scheduler = SitemapScheduler(settings, EgressPolicy.from_text(settings.egress_allow))
        submitted = await submit_server(server)
        await scheduler.start()
        await wait_until(lambda: bool(server.requests))
        await scheduler.shutdown()
        never.set()
    job = await job_of(submitted.id)
    assert (job.status, job.attempt, job.lease_until) == ("pending", 0, None)


@pytest.mark.criterion("failures-isolated", "errors-logged")
async def test_a_job_whose_end_the_database_refuses_does_not_end_the_worker() -> None:
    async with SiteServer() as empty, SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as good:
        refused = await submit_server(empty)
        await execute(f"ALTER TABLE jobs ADD CHECK (id <> {refused.id} OR status <> 'failed')")
        settings = settings_for(empty, good)
        scheduler = SitemapScheduler(settings, EgressPolicy.from_text(settings.egress_allow))
        with capture_logs() as lines:
            await scheduler.start()
            await wait_until(lambda: "job_end_not_recorded" in {line["event"] for line in lines})
            submitted = await submit_server(good)
            scheduler.wake()
            await wait_until(lambda: has_status(submitted.id, "completed"), seconds=5)
            assert scheduler.is_alive
            await scheduler.shutdown()
    (line,) = [line for line in lines if line["event"] == "job_end_not_recorded"]
    assert (line["log_level"], line["job_id"]) == ("error", str(refused.job_id))


async def test_a_step_of_pruning_that_fails_does_not_stop_the_others() -> None:
    async with get_background_session() as session, session.begin():
        domain = await add_domain(session, "example.com")
        await delete_domain(session, domain)
        await session.execute(text("ALTER TABLE batches RENAME TO other_batches"))
    with capture_logs() as lines:
        await prune()
    skipped = [line["what"] for line in lines if line["event"] == "prune_skipped"]
    assert "prune_batches" in skipped
    assert await rows_of(Domain) == []


async def test_an_unexpected_error_of_a_step_of_pruning_does_not_stop_the_others() -> None:
    async with get_background_session() as session, session.begin():
        await delete_domain(session, await add_domain(session, "example.com"))
        long_ago = datetime.now(UTC) - timedelta(days=2)
        session.add(
            Worker(id="a", hostname="a", pid=1, version="1", slots=0, last_seen_at=long_ago)
        )
    await execute("CREATE TABLE badges AS SELECT id AS worker_id FROM workers")
    await execute("ALTER TABLE badges ADD FOREIGN KEY (worker_id) REFERENCES workers")
    with capture_logs() as lines:
        await prune()
    failed = [line["what"] for line in lines if line["event"] == "prune_failed"]
    assert failed == ["prune_workers"]
    assert await rows_of(Domain) == []


async def test_old_jobs_and_deleted_sites_are_pruned() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        job = await scan_server(server)
    async with get_background_session() as session, session.begin():
        await session.execute(update(Job).values(finished_at=func.now() - timedelta(days=31)))
        domain = (await session.execute(select(Domain))).scalar_one()
        await delete_domain(session, domain)
    await prune()
    assert job.status == "completed"
    assert await rows_of(Job) == []
    assert await rows_of(Domain) == []
    assert await rows_of(SitemapUrl) == []
