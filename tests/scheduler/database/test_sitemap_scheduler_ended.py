"""A scheduler whose consumer or due clock has ended does not look as if it worked."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from structlog.testing import capture_logs

from siteatlas.errors import SchedulerEnded
from siteatlas.main import create_app
from siteatlas.net.egress import EgressPolicy
from siteatlas.scheduler.sitemap_scheduler import SitemapScheduler
from siteatlas.settings import Settings
from siteatlas.storage.session import Database
from tests.fixtures.pipeline import settings_for, submit_server
from tests.fixtures.queue import job_of
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")


def loop_named(name: str) -> asyncio.Task[object] | None:
    """The task that runs a coroutine function of this qualified name."""
    tasks = asyncio.all_tasks()
    return next((t for t in tasks if getattr(t.get_coro(), "__qualname__", "") == name), None)


async def end_loop(name: str) -> None:
    """Cancel it past everything: a task of a group that is cancelled ends without a word."""
    await wait_until(lambda: loop_named(name) is not None)
    await asyncio.sleep(0.2)
    loop = loop_named(name)
    assert loop is not None
    loop.cancel()


@pytest.mark.parametrize(
    "name", ["Consumer._poll_loop", "Consumer._heartbeat_loop", "DueClock.run"]
)
async def test_a_worker_of_which_a_loop_has_ended_ends_with_an_error(name: str) -> None:
    with capture_logs() as lines:
        worker = asyncio.create_task(
            SitemapScheduler(Settings(), EgressPolicy.from_text("")).run_until(asyncio.Event())
        )
        await end_loop(name)
        with pytest.raises(SchedulerEnded):
            await asyncio.wait_for(worker, 20)
    assert [line["log_level"] for line in lines if line["event"] == "scheduler_ended"] == ["error"]


async def test_a_worker_whose_loop_ended_releases_its_jobs() -> None:
    asked = asyncio.Event()

    async def never(_request: object) -> str:
        asked.set()
        await asyncio.sleep(60)
        return ""

    async with SiteServer({"/robots.txt": never}) as server:
        job = await submit_server(server)
        settings = settings_for(server)
        policy = EgressPolicy.from_text(settings.egress_allow)
        worker = asyncio.create_task(SitemapScheduler(settings, policy).run_until(asyncio.Event()))
        await asyncio.wait_for(asked.wait(), 20)
        await end_loop("Consumer._heartbeat_loop")
        with pytest.raises(SchedulerEnded):
            await asyncio.wait_for(worker, 20)
        assert (await job_of(job.id)).status == "pending"


async def test_a_service_whose_scheduler_has_ended_is_not_healthy(database: Database) -> None:
    app = create_app(Settings(), database=database)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client,
    ):
        assert (await client.get("/health")).status_code == 200
        await end_loop("Consumer._poll_loop")

        async def is_unhealthy() -> bool:
            return (await client.get("/health")).status_code == 503

        await wait_until(is_unhealthy)
        assert (await client.get("/health")).json()["code"] == "scheduler_ended"
