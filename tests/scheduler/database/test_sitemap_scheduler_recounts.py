"""The counters of a site equal its rows, however a job of it ends without publishing."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from siteatlas.catalog.scans import count_domain
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor import processing as recount
from siteatlas.processor.processing import recount_site
from siteatlas.queue.operator_actions import cancel
from siteatlas.queue.rescues import POISON_RESCUES
from siteatlas.scheduler.consumer import Consumer
from siteatlas.scheduler.slots import StopReason
from siteatlas.settings import Settings
from siteatlas.storage.models import Domain, Job
from siteatlas.storage.session import AsyncSession, get_background_session
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import rows_of, settings_for, submit_server
from tests.fixtures.queue import begin, change, job_of, let_lease_expire, submit, take_one
from tests.fixtures.records import add_unfinished_scan
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")


async def counters() -> tuple[int, int, int]:
    (site,) = await rows_of(Domain)
    return site.sitemap_count, site.url_count, site.distinct_url_count


async def dying_job() -> int:
    """A job alone in a worker that died, for the last time; three listings are stored."""
    submitted = await submit("example.com")
    async with transaction() as session:
        await add_unfinished_scan(session, submitted.id)
    await begin(await take_one())
    await change(submitted.id, alone=True, rescues=POISON_RESCUES - 1)
    await let_lease_expire(submitted.id)
    return submitted.id


def idle_consumer() -> Consumer:
    return Consumer(Settings(), EgressPolicy.from_text(""))


async def test_a_job_that_kills_its_workers_leaves_counters_that_equal_the_rows() -> None:
    job_id = await dying_job()
    assert await idle_consumer().run_once(1) == {}
    assert (await job_of(job_id)).status == "failed"
    assert await counters() == (1, 3, 3)


async def test_a_job_cancelled_after_its_worker_died_leaves_counters_that_equal_the_rows() -> None:
    job_id = await dying_job()
    await change(job_id, cancel_requested_at=func.now())
    assert await idle_consumer().run_once(1) == {}
    assert (await job_of(job_id)).status == "cancelled"
    assert await counters() == (1, 3, 3)


async def test_a_job_whose_site_is_locked_is_rescued_when_the_site_is_free() -> None:
    job_id = await dying_job()
    async with get_background_session() as other, other.begin():
        await other.execute(select(Domain).with_for_update())
        async with asyncio.timeout(4):
            assert await idle_consumer().run_once(1) == {}
        # As a submission or a removal goes on: it holds the site and locks the job.
        await other.execute(select(Job).with_for_update())
        assert (await job_of(job_id)).status == "processing"
    await idle_consumer().run_once(1)
    assert (await job_of(job_id)).status == "failed"


async def test_counting_a_large_site_does_not_hold_up_the_end_of_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = asyncio.Event()

    async def slow_count(session: AsyncSession, domain_id: UUID) -> tuple[int, int]:
        await go_on.wait()
        return await count_domain(session, domain_id)

    async def hanging(_request: object) -> str:
        await asyncio.sleep(30)
        return ""

    monkeypatch.setattr(recount, "count_domain", slow_count)
    async with SiteServer({"/robots.txt": hanging}) as server:
        settings = settings_for(server)
        consumer = Consumer(settings, EgressPolicy.from_text(settings.egress_allow))
        submitted = await submit_server(server)
        async with transaction() as session:
            await add_unfinished_scan(session, submitted.id)
        working = asyncio.create_task(consumer.run_once(1))
        await wait_until(lambda: bool(server.requests))
        async with transaction() as session:
            await cancel(session, submitted.id)
        (job,) = consumer._slots.jobs()
        job.stop(StopReason.CANCELLED)
        await wait_until(lambda: not consumer._slots.jobs(), seconds=4)
        assert (await job_of(submitted.id)).status == "cancelled"
        assert not working.done()
        go_on.set()
        assert await working == {str(submitted.job_id): "cancelled"}
    assert (await job_of(submitted.id)).status == "cancelled"
    assert await counters() == (1, 3, 3)


async def test_counters_of_a_newer_scan_are_not_replaced_by_an_older_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_id = await dying_job()

    async def overtaken(session: AsyncSession, domain_id: UUID) -> tuple[int, int]:
        before = await count_domain(session, domain_id)
        async with transaction() as other:
            newer = {"sitemap_count": 2, "url_count": 9, "distinct_url_count": 8}
            await other.execute(update(Domain).values(**newer))
        return before

    monkeypatch.setattr(recount, "count_domain", overtaken)
    await recount_site(job_id)
    assert await counters() == (2, 9, 8)
