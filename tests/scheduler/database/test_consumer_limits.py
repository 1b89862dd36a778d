"""Many jobs of one site take no more than its share, and leave the rest of the worker to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from siteatlas.processor import processing
from siteatlas.queue.claims import claim
from siteatlas.scheduler.consumer import Consumer
from siteatlas.settings import Settings
from siteatlas.storage.models import Domain, Job, JobAttempt
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import rows_of, submit_server, urlset
from tests.fixtures.queue import LEASE, Priority, change, job_of, submit
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until
from tests.scheduler.database.test_consumer_waiting_jobs import (
    Anybodys,
    EverythingHere,
    SiteOfManyAddresses,
    has_ended,
    honest_site,
    silent_site,
    working,
)

pytestmark = pytest.mark.usefixtures("database")

SLOTS = 8
SLOTS_PER_SITE = 2


@pytest.fixture(autouse=True)
def all_names_lead_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing, "DnsResolver", EverythingHere)


async def submit_hosts(site: SiteServer, count: int, priority: Priority) -> list[str]:
    """Submit so many hosts of one registrable domain."""
    hosts = [f"http://h{number}.example.com:{site.port}" for number in range(count)]
    for host in hosts:
        await submit(host, priority=priority)
    return hosts


async def nothing_is_left_to_claim(consumer: Consumer) -> bool:
    return not await consumer.claim_jobs(SLOTS)


@asynccontextmanager
async def flooded(count: int, priority: Priority) -> AsyncIterator[tuple[Consumer, list[str]]]:
    """A worker that has seen all of many jobs of a site that never answers."""
    async with silent_site() as hostile:
        hosts = await submit_hosts(hostile, count, priority)
        async with working(*hosts, concurrency=SLOTS) as consumer:
            await wait_until(lambda: len(hostile.paths) == SLOTS_PER_SITE)
            await wait_until(lambda: nothing_is_left_to_claim(consumer))
            yield consumer, hosts


@pytest.mark.parametrize("priority", [Priority.BATCH, Priority.INTERACTIVE])
async def test_a_worker_holds_no_more_jobs_of_a_site_than_it_runs(priority: Priority):
    async with flooded(60, priority) as (consumer, _):
        slots = consumer._slots
        assert (slots.running, slots.waiting) == (SLOTS_PER_SITE, 0)
        assert slots.free_for_background == SLOTS - SLOTS_PER_SITE - slots.reserved
        pending = [job for job in await rows_of(Job) if job.status == "pending"]
        assert len(pending) == 60 - SLOTS_PER_SITE
        assert {(job.attempt, job.fence, job.started_at) for job in pending} == {(0, 0, None)}
        assert await rows_of(JobAttempt) == []


@pytest.mark.parametrize("priority", [Priority.BATCH, Priority.INTERACTIVE])
async def test_a_batch_job_of_another_site_runs_behind_more_of_one_site_than_a_claim_examines(
    priority: Priority,
):
    async with flooded(150, priority) as (consumer, _), honest_site() as honest:
        batch = await submit_server(honest, priority=Priority.BATCH)
        consumer.wake()
        await wait_until(lambda: has_ended(batch.id))
    assert (await job_of(batch.id)).status == "completed"


@pytest.mark.full
async def test_another_worker_takes_jobs_that_were_left():
    async with (
        flooded(60, Priority.BATCH) as (consumer, hosts),
        working(*hosts, concurrency=SLOTS) as other,
    ):
        await wait_until(lambda: other._slots.running == SLOTS_PER_SITE)
        held = [{job.claim.id for job in one._slots.jobs()} for one in (consumer, other)]
    assert held[0].isdisjoint(held[1])


@pytest.mark.full
async def test_a_worker_does_not_poll_more_often_while_all_pending_jobs_are_of_a_site_at_its_limit():
    async with flooded(60, Priority.BATCH) as (consumer, _):
        polls = 0
        claim_jobs = consumer.claim_jobs

        async def counted(limit: int) -> int:
            nonlocal polls
            polls += 1
            return await claim_jobs(limit)

        consumer.claim_jobs = counted  # type: ignore[method-assign]
        await asyncio.sleep(2)
    assert polls <= 6


@pytest.mark.full
async def test_all_jobs_of_a_site_are_run_in_the_end():
    async with SiteOfManyAddresses({"/robots.txt": ""}) as site:
        hosts = await submit_hosts(site, 8, Priority.BATCH)
        async with working(*hosts, concurrency=SLOTS):
            await wait_until(all_ended, seconds=20)
    assert {attempt.attempt for attempt in await rows_of(JobAttempt)} == {1}


async def all_ended() -> bool:
    return {job.status for job in await rows_of(Job)} <= {"completed", "failed"}


async def test_a_single_run_leaves_no_job_of_a_site_for_later():
    async with SiteOfManyAddresses({"/robots.txt": ""}) as site:
        hosts = await submit_hosts(site, 2 * SLOTS, Priority.BATCH)
        allowed = ",".join(host.removeprefix("http://") for host in hosts)
        settings = Settings(egress_allow=allowed, host_delay=0, concurrency=SLOTS)
        outcomes = await Consumer(settings, Anybodys.from_text(allowed)).run_once(2 * SLOTS)
    assert len(outcomes) == 2 * SLOTS
    assert await all_ended()


async def test_a_claim_takes_few_jobs_of_one_site_and_passes_over_sites_at_their_limit():
    for number in range(200):
        await submit(f"https://h{number}.example.com", priority=Priority.BATCH)
    await submit("https://other.example", priority=Priority.BATCH)

    async def sites(*at_limit: str) -> list[str | None]:
        async with get_background_session() as session, session.begin():
            claims = await claim(
                session, "worker-a", 20, LEASE, sites_at_limit=at_limit, max_per_site=3
            )
        return [one.site for one in claims]

    assert await sites() == ["example.com"] * 3
    assert await sites("example.com") == ["other.example"]
    assert await sites("example.com", "other.example") == []


async def test_jobs_without_a_site_have_no_limit():
    for number in range(6):
        job = await submit(f"https://h{number}.example.com")
        await change(job.id, site=None)
    async with get_background_session() as session, session.begin():
        claims = await claim(session, "worker-a", 20, LEASE, max_per_site=2)
    assert len(claims) == 6


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("https://a.b.example.co.uk", "example.co.uk"),
        ("http://www.example.com:8080", "example.com"),
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("http://[2001:db8::1]:8080", "2001:db8::1"),
    ],
)
async def test_a_submitted_job_names_its_registrable_domain(address: str, site: str):
    assert (await job_of((await submit(address)).id)).site == site


async def test_a_scan_records_the_address_at_which_its_site_answered_for_the_next_job():
    async with SiteOfManyAddresses({"/sitemap.xml": urlset(["http://h0.example.com/a"])}) as site:
        (host,) = await submit_hosts(site, 1, Priority.BATCH)
        async with working(host):
            await wait_until(all_ended)
    (address,) = await EverythingHere([]).addresses("h0.example.com")
    assert [domain.address for domain in await rows_of(Domain)] == [address]
    assert (await job_of((await submit(host)).id)).address == address
