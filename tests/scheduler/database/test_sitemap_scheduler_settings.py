"""Settings of the scheduler in the environment affect its intervals and its claims."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, update

from siteatlas.catalog.domains import register_domain
from siteatlas.cli.scripts import run_scheduler
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.scheduler.outages import TICK
from siteatlas.scheduler.sitemap_scheduler import (
    SitemapScheduler,
    enqueue_due_domains,
    process_pending_sitemaps,
)
from siteatlas.settings import Settings, load_settings
from siteatlas.storage.models import LOCAL_USER_ID, Domain, Job
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import rows_of, submit_server
from tests.fixtures.site_server import SiteServer
from tests.fixtures.transactions import watched_transactions
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")

FAR_AWAY = timedelta(seconds=30)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine that runs the tests decides them."""
    for name in ("INTERVAL_MINUTES", "BATCH_SIZE", "MAX_INSTANCES"):
        monkeypatch.delenv(f"SITEMAP_SCHEDULER_{name}", raising=False)
    monkeypatch.delenv("SITEATLAS_CONCURRENCY", raising=False)


async def interval_of_the_clock() -> timedelta:
    """The time from the first tick of a started scheduler to its second."""
    scheduler = SitemapScheduler(load_settings().settings, EgressPolicy())
    started = datetime.now(UTC)
    await scheduler.start()
    try:
        await wait_until(
            lambda: (
                scheduler.next_tick_at is not None
                and scheduler.next_tick_at - datetime.now(UTC) > FAR_AWAY
            )
        )
        assert scheduler.next_tick_at is not None
        return scheduler.next_tick_at - started
    finally:
        await scheduler.shutdown()


async def add_jobs_that_fail_at_once(count: int) -> None:
    """Jobs without a site: they end without any network."""
    async with get_background_session() as session, session.begin():
        session.add_all(Job(created_by=LOCAL_USER_ID, result_data={}) for _ in range(count))


async def statuses() -> list[str]:
    return sorted(job.status for job in await rows_of(Job))


@pytest.mark.criterion("scheduler-environment")
async def test_the_interval_of_the_environment_reaches_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SITEMAP_SCHEDULER_INTERVAL_MINUTES", "7")
    assert timedelta(minutes=7) <= await interval_of_the_clock() < timedelta(minutes=7, seconds=30)


@pytest.mark.criterion("interval")
async def test_the_clock_ticks_every_five_minutes_by_default() -> None:
    assert timedelta(minutes=5) <= await interval_of_the_clock() < timedelta(minutes=5, seconds=30)


@pytest.mark.criterion("scheduler-environment")
async def test_the_number_of_instances_of_the_environment_reaches_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SITEMAP_SCHEDULER_MAX_INSTANCES", "3")
    scheduler = SitemapScheduler(load_settings().settings, EgressPolicy())
    await scheduler.start()
    instances = scheduler._clock.get_job(TICK).max_instances
    await scheduler.shutdown()
    assert instances == 3


@pytest.mark.criterion("scheduler-environment")
async def test_due_sites_are_queued_in_batches_of_the_size_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SITEMAP_SCHEDULER_BATCH_SIZE", "2")
    async with get_background_session() as session, session.begin():
        for number in range(5):
            site = parse_site(f"site-{number}.example.com")
            await register_domain(session, site, created_by=LOCAL_USER_ID, watch=True)
        await session.execute(update(Domain).values(next_scan_at=func.now() - timedelta(minutes=1)))
    with watched_transactions() as watched:
        while await enqueue_due_domains(load_settings().settings):
            pass
    queued = [sum("INSERT INTO jobs" in text for text in one.statements) for one in watched.all]
    assert [number for number in queued if number] == [2, 2, 1]
    assert await statuses() == ["pending"] * 5


@asynccontextmanager
async def scheduler_on_sites_that_hang(count: int) -> AsyncIterator[SitemapScheduler]:
    """A running scheduler, from the environment, with a job for each of some sites."""
    let_go = asyncio.Event()

    async def hanging(_request: object) -> str:
        await let_go.wait()
        return ""

    async with AsyncExitStack() as stack:
        servers = [SiteServer({"/robots.txt": hanging}) for _ in range(count)]
        for server in servers:
            await stack.enter_async_context(server)
            await submit_server(server)
        stack.callback(let_go.set)
        policy = EgressPolicy.from_text(",".join(server.host_port for server in servers))
        scheduler = SitemapScheduler(load_settings().settings, policy)
        await scheduler.start()
        stack.push_async_callback(scheduler.shutdown)
        stack.callback(let_go.set)
        yield scheduler


async def is_processing(count: int) -> bool:
    return (await statuses()).count("processing") == count


@pytest.mark.criterion("scheduler-environment", "load-bounded")
async def test_a_poll_claims_no_more_jobs_than_the_batch_size_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SITEMAP_SCHEDULER_BATCH_SIZE", "2")
    async with scheduler_on_sites_that_hang(5):
        await wait_until(lambda: is_processing(5))
        claims = Counter(job.started_at for job in await rows_of(Job))
    assert sorted(claims.values()) == [1, 2, 2]


@pytest.mark.criterion("scheduler-environment")
async def test_the_scripts_run_as_many_jobs_as_the_batch_size_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SITEMAP_SCHEDULER_BATCH_SIZE", "2")
    await add_jobs_that_fail_at_once(3)
    report, jobs = await run_scheduler(load_settings().settings)
    assert (report.looked_for, report.found) == (2, 2)
    assert [job.status for job in jobs] == ["failed", "failed"]


@pytest.mark.criterion("load-bounded")
async def test_no_more_jobs_run_at_once_than_there_are_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SITEATLAS_CONCURRENCY", "2")
    async with scheduler_on_sites_that_hang(5) as scheduler:
        await wait_until(lambda: is_processing(2))
        for _ in range(5):
            scheduler.wake()
            await asyncio.sleep(0.1)
        assert await statuses() == ["pending"] * 3 + ["processing"] * 2


@pytest.mark.criterion("default-limit")
async def test_without_a_limit_ten_jobs_are_taken() -> None:
    await add_jobs_that_fail_at_once(12)
    report = await process_pending_sitemaps()
    assert (report.looked_for, report.found) == (10, 10)
    assert await statuses() == ["failed"] * 10 + ["pending"] * 2


@pytest.mark.criterion("default-limit", "load-bounded")
async def test_a_limit_of_the_caller_is_kept() -> None:
    await add_jobs_that_fail_at_once(5)
    report = await process_pending_sitemaps(3, settings=Settings(), policy=EgressPolicy())
    assert report.found == 3
    assert await statuses() == ["failed"] * 3 + ["pending"] * 2
