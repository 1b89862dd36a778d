"""Polls: what an idle one costs, and that a failing rescue stops no claim."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, func, select

from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.processing import Recounts
from siteatlas.scheduler import consumer as rescuer
from siteatlas.scheduler.consumer import Consumer
from siteatlas.scheduler.slots import RunningJob
from siteatlas.storage.models import Domain, Job, JobAttempt, Worker
from siteatlas.storage.session import Database, get_background_session
from tests.fixtures.database import is_lock_awaited
from tests.fixtures.pipeline import pages, settings_for, submit_server, urlset, work
from tests.fixtures.queue import begin, job_of, let_lease_expire, submit, take, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until


@contextmanager
def statements_on_jobs(database: Database) -> Iterator[list[str]]:
    """The statements about jobs that are sent meanwhile."""
    seen: list[str] = []

    def note(_c: Any, _u: Any, statement: str, *_rest: Any) -> None:
        if "jobs" in statement:
            seen.append(statement)

    engines = [engine.sync_engine for engine in database.engines]
    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    yield seen
    for engine in engines:
        event.remove(engine, "before_cursor_execute", note)


def consumer_for(*servers: SiteServer) -> Consumer:
    settings = settings_for(*servers)
    return Consumer(settings, EgressPolicy.from_text(settings.egress_allow))


async def test_an_idle_poll_is_one_statement(database: Database):
    consumer = consumer_for()
    with statements_on_jobs(database) as seen:
        assert await consumer.claim_jobs(10) == 0
    assert len(seen) == 1


async def test_a_poll_with_work_looks_once_and_claims_once(database: Database):
    await submit("https://example.com")
    consumer = consumer_for()
    with statements_on_jobs(database) as seen:
        _, claims = await consumer._claim(10)
    assert (len(claims), len(seen)) == (1, 2)


def honest_site() -> SiteServer:
    return SiteServer({"/sitemap.xml": urlset(pages("a", 5))})


async def record_an_attempt_in_advance(job_id: int) -> None:
    """The rescue of this job cannot be recorded any more."""
    job = await job_of(job_id)
    async with get_background_session() as session, session.begin():
        session.add(JobAttempt(job_id=job.id, fence=job.fence, attempt=1, outcome="rescued"))


@pytest.mark.usefixtures("database")
async def test_a_job_whose_rescue_fails_stops_neither_claims_nor_other_rescues():
    async with honest_site() as silent, honest_site() as fresh:
        await submit("https://broken.example")
        broken = await take_one("worker-gone")
        lost = await submit_server(silent)
        await take(1, "worker-gone")
        await record_an_attempt_in_advance(broken.id)
        for job_id in (broken.id, lost.id):
            await let_lease_expire(job_id)
        waiting = await submit_server(fresh)
        await work(settings_for(silent, fresh))
    assert (await job_of(lost.id)).status == "completed"
    assert (await job_of(waiting.id)).status == "completed"
    assert (await job_of(broken.id)).status == "processing"


@pytest.mark.usefixtures("database")
async def test_the_first_poll_after_a_restart_of_the_machine_blames_no_job():
    job = await submit("https://innocent.example")
    await begin(await take_one("worker-gone"))
    async with get_background_session() as session, session.begin():
        session.add(
            Worker(
                id="worker-gone",
                hostname=socket.gethostname(),
                boot_id="before",
                pid=1,
                version="1",
                slots=1,
                last_seen_at=func.now() - timedelta(minutes=2),
            )
        )
    await let_lease_expire(job.id)
    await consumer_for()._rescue_and_claim(1)
    assert (await job_of(job.id)).rescues == 0


@pytest.mark.usefixtures("database")
async def test_a_locked_site_delays_the_rescue_of_its_job_alone():
    """A job that ends by its rescue is noted at its site, whose row somebody holds."""
    await submit("https://locked.example")
    await submit("https://free.example")
    locked, free = await take(2, "worker-gone")
    for one in (locked, free):
        await begin(one)
        async with get_background_session() as session, session.begin():
            job = (await session.execute(select(Job).where(Job.id == one.id))).scalar_one()
            job.rescues, job.alone = 5, True
        await let_lease_expire(one.id)
    recounts = Recounts()
    mine = rescuer.Rescuer(recounts)
    async with get_background_session() as session, session.begin():
        held = select(Domain).where(Domain.id == locked.domain_id).with_for_update()
        await session.execute(held)
        assert await mine.rescue([locked.id, free.id], count_deaths=True) == 1
    assert mine.ignored == [locked.id]
    assert [(await job_of(one.id)).status for one in (locked, free)] == ["processing", "failed"]
    assert await mine.rescue([locked.id], count_deaths=True) == 1
    await recounts.finish()


@pytest.mark.usefixtures("database")
async def test_a_job_that_failed_to_be_rescued_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
):
    await submit("https://broken.example")
    broken = await take_one("worker-gone")
    await record_an_attempt_in_advance(broken.id)
    await let_lease_expire(broken.id)
    consumer = consumer_for()
    assert await consumer.claim_jobs(1) == 0
    assert consumer._rescuer.ignored == [broken.id]
    monkeypatch.setattr(rescuer, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(rescuer, "LOCKED_SECONDS", 0.0)
    later = consumer_for()
    assert await later.claim_jobs(1) == 0
    assert later._rescuer.ignored == []


@pytest.mark.usefixtures("database")
async def test_rescued_attempts_are_recorded_once():
    await submit("https://example.com")
    lost = await take_one("worker-gone")
    await let_lease_expire(lost.id)
    assert await rescuer.Rescuer(Recounts()).rescue([lost.id], count_deaths=True) == 1
    assert await rescuer.Rescuer(Recounts()).rescue([lost.id], count_deaths=True) == 0
    async with get_background_session() as session, session.begin():
        assert await session.scalar(select(func.count()).select_from(JobAttempt)) == 1


@pytest.mark.usefixtures("database")
async def test_a_job_that_becomes_an_orphan_while_others_are_released_is_released_next():
    await submit("https://first.example")
    consumer = consumer_for()
    orphan = await take_one(consumer.worker_id)
    consumer._may_have_orphans = True
    async with get_background_session() as session, session.begin():
        await session.execute(select(Job).where(Job.id == orphan.id).with_for_update())
        polling = asyncio.create_task(consumer.claim_jobs(1))
        await wait_until(is_lock_awaited)
        await submit("https://second.example")
        second = await take_one(consumer.worker_id)
        consumer._on_job_end(RunningJob(second), None)
    await polling
    await consumer.claim_jobs(0)
    assert (await job_of(second.id)).status == "pending"
