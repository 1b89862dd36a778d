"""The oracle detects bugs: without one of the safeguards, the same scenario breaks an invariant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from sqlalchemy import func

from siteatlas.errors import LeaseLost
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor import steps as batch_writer
from siteatlas.processor.processing import Processor
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.claims import claim
from siteatlas.queue.completion import complete
from siteatlas.queue.fence import Claim, heartbeat
from siteatlas.queue.rescues import rescue
from siteatlas.storage.session import (
    AsyncSession,
    bind_database,
    create_database,
    get_background_session,
)
from tests.faults.broken_variants import (
    claim_without_skip_locked,
    rescue_by_age,
    write_without_fence,
)
from tests.faults.database_inspector import DatabaseInspector
from tests.faults.oracle import violations
from tests.fixtures.pipeline import pages, settings_for, submit_server, urlset, work
from tests.fixtures.queue import change, let_lease_expire, submit, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.faults_short, pytest.mark.usefixtures("bound")]

LEASE = 60.0
WAITING_FOR_LOCKS = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
ClaimOperation = Callable[[AsyncSession, str, int, float], Awaitable[list[Claim]]]
RescueOperation = Callable[[AsyncSession], Awaitable[list[Any]]]


@pytest_asyncio.fixture
async def bound(url: str) -> AsyncIterator[None]:
    """The database of the test, bound to this process."""
    database = create_database(url, behind_pooler=False)
    bind_database(database)
    yield
    bind_database(None)
    await database.close()


async def two_workers_claim_at_once(
    operation: ClaimOperation, inspector: DatabaseInspector
) -> None:
    """Two claims overlap; then each worker that got the job completes it."""
    job = await submit("example.com")
    async with get_background_session() as session, session.begin():
        claims = await operation(session, "one", 1, LEASE)
        other = asyncio.create_task(in_own_session(lambda s: operation(s, "two", 1, LEASE)))
        await wait_until(lambda: has_ended_or_waits(other, inspector))
    claims += await other
    for one in claims:
        with suppress(LeaseLost):
            async with get_background_session() as session, session.begin():
                await complete(session, one, {"url_count": 0})
    assert (await inspector.job(job.id))["status"] == "completed"
    await inspector.rows(
        "WITH head AS (UPDATE feed_head SET seq = seq + 1 RETURNING seq) "
        "INSERT INTO scans (job_id, job_uuid, domain_id, created_by, state, published_seq) "
        "SELECT id, job_id, domain_id, created_by, 'published', seq FROM jobs, head"
    )


async def has_ended_or_waits(claiming: asyncio.Task[Any], inspector: DatabaseInspector) -> bool:
    """Whether a claim has ended, or waits for the lock of another one."""
    return claiming.done() or bool(await inspector.rows(WAITING_FOR_LOCKS))


async def in_own_session(work: Callable[[AsyncSession], Awaitable[Any]]) -> Any:
    """Run an operation in a separate transaction."""
    async with get_background_session() as session, session.begin():
        return await work(session)


async def test_a_claim_without_skip_locked_is_detected(inspector: DatabaseInspector):
    await two_workers_claim_at_once(claim_without_skip_locked, inspector)
    assert [line.partition(":")[0] for line in await violations(inspector)] == [
        "a claim has no recorded end"
    ]


async def test_the_real_claim_violates_nothing(inspector: DatabaseInspector):
    await two_workers_claim_at_once(claim, inspector)
    assert await violations(inspector) == []


def changing_site(go_on: asyncio.Event) -> SiteServer:
    """Its sitemap is large and slow for the first reader, and small for the next one."""
    new = urlset(pages("new", 10))
    asked = 0

    async def answer(request: web.BaseRequest) -> web.StreamResponse | str:
        nonlocal asked
        asked += 1
        if asked > 1:
            return new
        old = urlset(pages("old", 14_000)).replace("{base}", f"http://{request.host}").encode()
        middle = old.index(b"page-7000<")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(old[:middle])
        await go_on.wait()
        await response.write(old[middle:])
        await response.write_eof()
        return response

    return SiteServer({"/robots.txt": "Sitemap: {base}/s.xml\n", "/s.xml": answer})


async def a_worker_is_overtaken(inspector: DatabaseInspector) -> None:
    """The first worker has written a batch, and goes on after the second one completed the job."""
    go_on = asyncio.Event()
    async with changing_site(go_on) as server:
        settings = settings_for(server)
        processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
        submitted = await submit_server(server)
        first = asyncio.create_task(processor.run(await take_one(), JobActivity()))
        await inspector.wait_for("SELECT count(*) > 0 FROM sitemap_urls")
        await let_lease_expire(submitted.id)
        await work(settings)
        go_on.set()
        with suppress(Exception):
            await first


async def test_a_write_without_the_fence_is_detected(
    inspector: DatabaseInspector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch_writer, "report_progress", write_without_fence)
    await a_worker_is_overtaken(inspector)
    assert "the counter of a document is not that of its rows" in str(await violations(inspector))


async def test_the_real_write_violates_nothing(inspector: DatabaseInspector):
    await a_worker_is_overtaken(inspector)
    assert await violations(inspector, deaths=1) == []


async def a_live_job_takes_long(operation: RescueOperation) -> None:
    """Its worker sends heartbeats; another one looks for jobs to rescue."""
    await submit("example.com")
    one = await take_one()
    await change(one.id, started_at=func.now() - timedelta(minutes=10))
    await in_own_session(lambda s: heartbeat(s, [one], LEASE))
    await in_own_session(operation)


async def test_a_rescue_by_age_is_detected(inspector: DatabaseInspector):
    await a_live_job_takes_long(rescue_by_age)
    assert await violations(inspector, deaths=0) == ["1 rescues, but only 0 deaths"]


async def test_the_real_rescue_violates_nothing(inspector: DatabaseInspector):
    await a_live_job_takes_long(rescue)
    assert await violations(inspector, deaths=0) == []
