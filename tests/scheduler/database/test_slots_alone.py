"""Jobs whose worker died twice run alone, one after another, and no longer than necessary."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from sqlalchemy import update

from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.fence import Claim, SubmittedJob
from siteatlas.queue.submission import submit_site
from siteatlas.scheduler import slots
from siteatlas.scheduler.consumer import Consumer
from siteatlas.scheduler.slots import RunningJob, Slots
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID, Job
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import pages, rows_of, submit_server, urlset
from tests.fixtures.queue import change, job_of, let_lease_expire, rescue_all, submit, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")


class GatedSite(SiteServer):
    """The last of its sitemaps is not answered before the gate is opened."""

    def __init__(self, *, first: bool = False) -> None:
        self.gate = asyncio.Event()
        names = [f"{{base}}/{name}.xml" for name in (["first"] if first else []) + ["last"]]
        super().__init__(
            {
                "/robots.txt": "".join(f"Sitemap: {name}\n" for name in names),
                "/first.xml": urlset(pages("first", 5)),
                "/last.xml": self._last,
            }
        )

    async def _last(self, _request: web.BaseRequest) -> str:
        await self.gate.wait()
        return urlset([f"{self.base}/last"])


def honest_site() -> SiteServer:
    return SiteServer({"/sitemap.xml": urlset(pages("a", 5))})


@asynccontextmanager
async def working() -> AsyncIterator[Consumer]:
    """A consumer that may visit all of 127.0.0.1."""
    settings = Settings(egress_allow="127.0.0.1:*", host_delay=0, concurrency=4)
    policy, stop = EgressPolicy.from_text(settings.egress_allow), asyncio.Event()
    consumer = Consumer(settings, policy)
    running = asyncio.create_task(consumer.run(stop))
    try:
        yield consumer
    finally:
        stop.set()
        await asyncio.wait_for(running, 30)


async def submit_suspect(server: SiteServer) -> SubmittedJob:
    """Submit a site that is a suspect from the start: the consumer may claim it at once."""
    async with get_background_session() as session, session.begin():
        job = await submit_site(session, parse_site(server.base), created_by=LOCAL_USER_ID)
        await session.execute(update(Job).where(Job.id == job.id).values(rescues=2))
    return job


async def statuses() -> list[str]:
    return [job.status for job in await rows_of(Job)]


async def has_ended(job_id: int) -> bool:
    return (await job_of(job_id)).status in ("completed", "failed")


async def test_a_suspect_runs_alone_and_the_others_come_back():
    async with GatedSite() as other, GatedSite() as suspected:
        first = await submit_server(other)
        async with working() as consumer:
            await wait_until(lambda: "/last.xml" in other.paths)
            suspect = await submit_suspect(suspected)
            consumer.wake()
            await wait_until(lambda: "/last.xml" in suspected.paths)
            assert await statuses() == ["pending", "processing"]
            assert (await job_of(suspect.id)).alone
            other.gate.set()
            suspected.gate.set()
            await wait_until(lambda: has_ended(suspect.id))
            await wait_until(lambda: has_ended(first.id))
    assert await statuses() == ["completed", "completed"]


async def test_a_suspect_is_not_blamed_for_a_death_before_the_others_have_ended():
    async with GatedSite() as other, GatedSite() as suspected:
        await submit_server(other)
        async with working() as consumer:
            await wait_until(lambda: "/last.xml" in other.paths)
            suspect = await submit_suspect(suspected)
            assert await consumer.claim_jobs(1) == 1
            assert await statuses() == ["processing", "processing"]
            assert not (await job_of(suspect.id)).alone
            await change(suspect.id, worker_id="dead")
            await let_lease_expire(suspect.id)
            (rescued,) = await rescue_all()
            assert (rescued.id, rescued.status, rescued.rescues) == (suspect.id, "pending", 2)
            other.gate.set()


async def test_a_suspect_beside_a_job_that_does_not_end_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(slots, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(slots, "STOP_SECONDS", 0.1)
    await submit("stuck.example.com")
    async with GatedSite() as suspected, working() as consumer, stuck_job(consumer):
        suspect = await submit_suspect(suspected)
        consumer.wake()
        await wait_until(lambda: "/last.xml" in suspected.paths)
        assert not (await job_of(suspect.id)).alone
        suspected.gate.set()


@asynccontextmanager
async def stuck_job(consumer: Consumer) -> AsyncIterator[None]:
    """The one waiting job runs in this process and ends only with the block."""
    over = asyncio.Event()

    async def ignore_stop() -> None:
        with suppress(asyncio.CancelledError):
            await over.wait()
        await over.wait()

    job = RunningJob(await take_one(), task=asyncio.create_task(ignore_stop()))
    consumer._slots.add(job)
    try:
        yield
    finally:
        over.set()
        consumer._slots.remove(job)


async def test_a_suspect_that_survives_its_time_alone_is_cleared_and_others_run_beside_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(slots, "ALONE_SECONDS", 1.0)
    async with GatedSite() as suspected, honest_site() as honest, working() as consumer:
        suspect = await submit_suspect(suspected)
        consumer.wake()
        await wait_until(lambda: "/last.xml" in suspected.paths)
        assert (await job_of(suspect.id)).alone
        other = await submit_server(honest)
        await wait_until(lambda: has_ended(other.id))
        job = await job_of(suspect.id)
        assert (job.status, job.rescues, job.alone) == ("processing", 0, False)
        suspected.gate.set()
        await wait_until(lambda: has_ended(suspect.id))


async def test_isolation_ends_with_the_first_document():
    async with GatedSite(first=True) as suspected, honest_site() as honest, working() as consumer:
        suspect = await submit_suspect(suspected)
        consumer.wake()
        await wait_until(lambda: "/last.xml" in suspected.paths)
        other = await submit_server(honest)
        await wait_until(lambda: has_ended(other.id), seconds=15)
        job = await job_of(suspect.id)
        assert (job.status, job.rescues, job.alone) == ("processing", 0, False)
        suspected.gate.set()
        await wait_until(lambda: has_ended(suspect.id))


async def started_in_order(*jobs: SubmittedJob) -> bool:
    started = [(await job_of(job.id)).started_at for job in jobs]
    return started == sorted(filter(None, started))


async def test_the_others_are_stopped_once_for_several_suspects():
    async with honest_site() as one, honest_site() as another, honest_site() as honest:
        first, second = await submit_suspect(one), await submit_suspect(another)
        other = await submit_server(honest)
        async with working():
            await wait_until(lambda: has_ended(other.id))
    assert await started_in_order(first, second, other)


async def test_suspects_let_the_others_work_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slots, "ALONE_SECONDS", 0.7)
    async with GatedSite() as one, honest_site() as another, honest_site() as honest:
        first, second = await submit_suspect(one), await submit_suspect(another)
        other = await submit_server(honest)
        async with working():
            await wait_until(lambda: has_ended(other.id))
            one.gate.set()
            await wait_until(lambda: has_ended(second.id))
    assert await started_in_order(first, other, second)


async def test_an_idle_process_makes_the_next_suspects_wait_no_longer_than_a_busy_one():
    ended = slots.Alone(Slots(4), lambda: None)
    ended.add(RunningJob(await submit_and_take()))
    ended._since = time.monotonic() - 7_200
    ended.give_way()
    assert ended.is_paused
    assert ended._not_before - time.monotonic() < 180


async def submit_and_take() -> Claim:
    await submit("example.com")
    return await take_one()


async def test_a_suspect_does_not_wait_where_nobody_else_does():
    async with honest_site() as suspected, working() as consumer:
        consumer._alone._not_before = time.monotonic() + 60
        suspect = await submit_suspect(suspected)
        consumer.wake()
        await wait_until(lambda: has_ended(suspect.id))
    assert await statuses() == ["completed"]
