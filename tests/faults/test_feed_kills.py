"""The script of changes again, with real workers, every second of which is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest
import pytest_asyncio

from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.models import Job
from siteatlas.storage.session import bind_database, create_database
from tests.catalog.database.performance import Performance
from tests.catalog.database.runs import submit_watched
from tests.catalog.database.script import STEPS
from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.faults.oracle import error_lines, violations
from tests.faults.phases import BLOCKED_BY, REACH_SECONDS
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.queue import job_of
from tests.fixtures.waiting import wait_until

HELD = "/b.xml"
END_SECONDS = 60
SCAN_LOCK = "SELECT FROM scans WHERE job_id = $1 FOR NO KEY UPDATE"
ATTEMPT_ROW = "INSERT INTO job_attempts (job_id, fence, attempt, outcome) VALUES ($1, $2, 0, '')"
ENDED = "SELECT status IN ('completed', 'failed') FROM jobs WHERE id = $1"


@pytest_asyncio.fixture
async def client(client_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """The API on the database of the workers, which is bound to this process."""
    database = create_database(client_url)
    bind_database(database)
    app = create_app(Settings(), run_scheduler=False, database=database)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as opened:
        yield opened
    bind_database(None)
    await database.close()


class Killer:
    """Kills the worker of every second scan: while it reads, while it publishes, at its very end."""

    def __init__(self, fleet: Fleet, inspector: DatabaseInspector, figures: Figures) -> None:
        self._fleet = fleet
        self._inspector = inspector
        self._figures = figures
        self.deaths = 0

    async def run(self, site: ChangingSite, number: int) -> tuple[Job, bool]:
        """One scan of the script; whether its worker was killed."""
        kills = bool(number % 2)
        if kills:
            site.hold(HELD)
        submitted = await submit_watched(site)
        was_killed = kills and await self._kill(site, submitted.id, number // 2 % 3)
        site.release()
        await self._inspector.wait_for(ENDED, submitted.id, seconds=END_SECONDS)
        return await job_of(submitted.id), was_killed

    async def _kill(self, site: ChangingSite, job_id: int, where: int) -> bool:
        async def reached_or_ended() -> bool:
            return site.reached.is_set() or bool(await self._inspector.value(ENDED, job_id))

        await wait_until(reached_or_ended, seconds=REACH_SECONDS)
        if not site.reached.is_set():
            return False
        job = await self._inspector.job(job_id)
        async with AsyncExitStack() as stack:
            if where:
                values = (SCAN_LOCK, job_id) if where == 1 else (ATTEMPT_ROW, job_id, job["fence"])
                holder = await stack.enter_async_context(self._inspector.holding(*values))
                site.release()
                pid = holder.get_server_pid()
                await self._inspector.wait_for(BLOCKED_BY, pid, seconds=REACH_SECONDS)
            self._fleet.process_of(job["worker_id"]).kill()
        self.deaths += 1
        self._figures.count("kill -9 of a worker, feed checked")
        await self._fleet.worker()
        return True


@pytest.mark.timeout(900)
async def test_the_feed_is_the_log_though_every_second_worker_is_killed(
    client: httpx.AsyncClient, inspector: DatabaseInspector, fleet: Fleet, figures: Figures
):
    killer = Killer(fleet, inspector, figures)
    await fleet.workers(2)
    async with ChangingSite() as site:
        performance = Performance(site, client, killer.run)
        for number, step in enumerate(STEPS):
            await performance.play(number, step)
    assert killer.deaths >= 10
    assert await violations(inspector, deaths=killer.deaths) == []
    assert [line for one in fleet.processes for line in error_lines(one.output)] == []
