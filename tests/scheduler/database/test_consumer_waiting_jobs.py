"""Jobs that wait, hang or kill leave the other jobs of their process alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from zlib import crc32

import pytest
from aiohttp import web
from sqlalchemy import delete, select

from siteatlas.meters import meters
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor import processing, publication
from siteatlas.queue.operator_actions import cancel
from siteatlas.scheduler.consumer import Consumer
from siteatlas.settings import Settings
from siteatlas.storage.models import Job, JobAttempt
from siteatlas.storage.session import (
    Database,
    bind_database,
    create_database,
    get_background_session,
    get_job_session,
)
from tests.fixtures.pipeline import index, pages, rows_of, submit_server, urlset
from tests.fixtures.queue import Priority, change, job_of, submit
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")


class EverythingHere:
    """A resolver that finds every name on this machine, each at an address of its own."""

    def __init__(self, servers: Sequence[str]) -> None:
        pass

    async def addresses(self, host: str) -> Sequence[str]:
        number = crc32(host.encode())
        return [f"127.{number % 200 + 1}.{number // 200 % 200 + 1}.1"]


class Anybodys(EgressPolicy):
    """Allowed hosts are treated like all others: with delays and shares."""

    def is_own(self, address: WebAddress) -> bool:
        return False


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """All names lead to this machine."""
    monkeypatch.setattr(processing, "DnsResolver", EverythingHere)


class SiteOfManyAddresses(SiteServer):
    """The same site at every address of this machine."""

    listens_on = "0.0.0.0"


def slow_site() -> SiteServer:
    """Asks for 30 seconds between requests and names 800 sitemaps."""

    def children(request: web.BaseRequest) -> str:
        return index(f"http://{request.host}/{number}.xml" for number in range(800))

    return SiteOfManyAddresses(
        {
            "/robots.txt": "User-agent: *\nCrawl-delay: 30\nSitemap: /index.xml\n",
            "/index.xml": children,
        }
    )


def silent_site() -> SiteServer:
    """Accepts requests and never answers."""

    async def silent(_request: web.BaseRequest) -> str:
        await asyncio.Event().wait()
        return ""

    return SiteOfManyAddresses({"/robots.txt": silent})


def honest_site() -> SiteServer:
    return SiteServer({"/sitemap.xml": urlset(pages("a", 5))})


async def submit_name(site: str) -> int:
    return (await submit(site, priority=Priority.BATCH)).id


@asynccontextmanager
async def working(*sites: str, **values: object) -> AsyncIterator[Consumer]:
    """A consumer that may visit these sites and all of 127.0.0.1."""
    allowed = ",".join([*(site.removeprefix("http://") for site in sites), "127.0.0.1:*"])
    settings = Settings(egress_allow=allowed, host_delay=0, **values)  # type: ignore[arg-type]
    consumer, stop = Consumer(settings, Anybodys.from_text(allowed)), asyncio.Event()
    running = asyncio.create_task(consumer.run(stop))
    try:
        yield consumer
    finally:
        stop.set()
        await asyncio.wait_for(running, 30)


async def statuses() -> list[str]:
    return [job.status for job in await rows_of(Job)]


async def test_sites_that_make_us_wait_leave_their_slots_to_others():
    async with slow_site() as slow, honest_site() as honest:
        sites = [f"http://www.site-{number}.example:{slow.port}" for number in range(8)]
        for site in sites:
            await submit_name(site)
        async with working(*sites, concurrency=4) as consumer:
            await wait_until(lambda: slow.paths.count("/robots.txt") == 8)
            batch = await submit_server(honest, priority=Priority.BATCH)
            consumer.wake()
            await wait_until(lambda: has_ended(batch.id))
            assert (await statuses()).count("processing") == 8
    assert (await job_of(batch.id)).status == "completed"


async def has_ended(job_id: int) -> bool:
    return (await job_of(job_id)).status in ("completed", "failed")


async def test_silent_batch_sites_leave_a_slot_for_a_person():
    async with silent_site() as hostile, honest_site() as honest:
        sites = [f"http://www.site-{number}.example:{hostile.port}" for number in range(8)]
        for site in sites:
            await submit_name(site)
        async with working(*sites, concurrency=4) as consumer:
            await wait_until(lambda: len(hostile.paths) == 3)
            person = await submit_server(honest)
            consumer.wake()
            await wait_until(lambda: has_ended(person.id))
            assert len(hostile.paths) == 3
    assert (await job_of(person.id)).status == "completed"


async def test_many_hosts_of_one_domain_get_a_part_of_the_slots():
    async with silent_site() as hostile, honest_site() as honest:
        sites = [f"http://h{number}.example.com:{hostile.port}" for number in range(12)]
        for site in sites:
            await submit_name(site)
        async with working(*sites, concurrency=8) as consumer:
            await wait_until(lambda: len(hostile.paths) == 2)
            batch = await submit_server(honest, priority=Priority.BATCH)
            consumer.wake()
            await wait_until(lambda: has_ended(batch.id))
            assert len(hostile.paths) == 2


async def test_a_running_process_keeps_no_list_of_the_jobs_it_ended():
    async with honest_site() as honest, working(concurrency=2) as consumer:
        job = await submit_server(honest)
        consumer.wake()
        await wait_until(lambda: has_ended(job.id))
        await wait_until(lambda: not consumer._slots.jobs())
        kept = [value for value in vars(consumer).values() if isinstance(value, (dict, list, set))]
        assert not any(kept)


async def test_a_job_that_has_just_ended_is_not_reported_as_lost(monkeypatch: pytest.MonkeyPatch):
    """The heartbeat looks between the commit of the end and the moment the worker hears of it."""
    losses = meters.lease_losses
    async with honest_site() as honest, working(concurrency=2) as consumer:
        publishing = publication.publish

        async def published(*arguments: object) -> object:
            result = await publishing(*arguments)  # type: ignore[arg-type]
            await consumer.heartbeat()
            return result

        monkeypatch.setattr(processing, "publish", published)
        job = await submit_server(honest)
        consumer.wake()
        await wait_until(lambda: has_ended(job.id))
    assert (await job_of(job.id)).status == "completed"
    assert meters.lease_losses == losses


async def test_a_worker_whose_job_was_taken_over_claims_fewer_however_it_learns_of_it():
    """Here the fence refuses a write, long before the next heartbeat."""
    gate = asyncio.Event()

    async def slow(_request: web.BaseRequest) -> str:
        await gate.wait()
        return urlset(["http://127.0.0.1/a"])

    losses = meters.lease_losses
    async with SiteServer({"/sitemap.xml": slow}) as site, working(concurrency=8) as consumer:
        job = await submit_server(site)
        consumer.wake()
        await wait_until(lambda: "/sitemap.xml" in site.paths)
        await change(job.id, fence=Job.fence + 1, worker_id="another")
        gate.set()
        await wait_until(lambda: not consumer._slots.jobs())
        assert consumer._concurrency.max_jobs == 1
    assert meters.lease_losses == losses + 1


async def test_jobs_leave_connections_to_heartbeat_and_requests(
    database: Database, database_url: str
):
    small = create_database(database_url, pool_size=2, pool_overflow=2)
    bind_database(small)
    async with asyncio.TaskGroup() as group:
        holders = [group.create_task(hold_a_job_session()) for _ in range(20)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(1), get_background_session() as session, session.begin():
            assert (await session.execute(select(1))).scalar_one() == 1
        for holder in holders:
            holder.cancel()
    bind_database(database)
    await small.close()


async def hold_a_job_session() -> None:
    async with get_job_session() as session, session.begin():
        await session.execute(select(1))
        await asyncio.sleep(60)


async def test_a_job_whose_end_cannot_be_written_leaves_the_consumer_working():
    async with slow_site() as slow, honest_site() as honest:
        site = f"http://www.site-1.example:{slow.port}"
        stuck = await submit_name(site)
        async with working(site, concurrency=4, lease_seconds=2) as consumer:
            await wait_until(lambda: "/index.xml" in slow.paths)
            async with get_background_session() as session, session.begin():
                job = await session.get_one(Job, stuck)
                session.add(JobAttempt(job_id=stuck, fence=job.fence, attempt=1, outcome="failed"))
                await cancel(session, stuck)
            await wait_until(lambda: not consumer._slots.jobs())
            async with get_background_session() as session, session.begin():
                await session.execute(delete(JobAttempt).where(JobAttempt.job_id == stuck))
            person = await submit_server(honest)
            consumer.wake()
            await wait_until(lambda: has_ended(person.id))
    assert (await job_of(person.id)).status == "completed"
