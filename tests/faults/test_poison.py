"""One site kills every worker that reads it; jobs that ran at the same time are not blamed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from aiohttp import web

from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.faults.phases import submit
from tests.faults.staged_site import SmallSite
from tests.fixtures.commands import COMMAND
from tests.fixtures.site_server import SiteServer

INNOCENTS = 5
# Long enough that all jobs run when the worker dies.
INNOCENT_SECONDS = 1.0
TIMEOUT_SECONDS = 150
RUNNING = "SELECT count(*) FROM jobs WHERE status = 'processing' AND lease_until > now()"
WAITING = "SELECT count(*) FROM jobs WHERE status IN ('pending', 'processing')"
ENDS = "SELECT id, status, error_code FROM jobs"


class KillerSite(SiteServer):
    """Whoever asks for its sitemap is killed, once the other jobs run too or it is alone."""

    def __init__(self, fleet: Fleet, inspector: DatabaseInspector) -> None:
        super().__init__({"/robots.txt": "Sitemap: {base}/only.xml\n", "/only.xml": self._kill})
        self._fleet = fleet
        self._inspector = inspector
        self.kills = 0

    async def _kill(self, _request: web.BaseRequest) -> str:
        with suppress(TimeoutError):
            await self._inspector.wait_for(RUNNING, expected=INNOCENTS + 1, seconds=0.5)
        for one in self._fleet.processes:
            if one.process.poll() is None:
                self.kills += 1
                one.kill()
        return ""


async def keep_one_worker(fleet: Fleet) -> None:
    """Start the next worker when one has died, as a supervisor does."""
    while True:
        await fleet.launch(COMMAND, "worker").wait(TIMEOUT_SECONDS)


@pytest.mark.timeout(240)
async def test_a_job_that_kills_its_worker_is_poison_and_other_jobs_complete(
    url: str, inspector: DatabaseInspector, fleet: Fleet, figures: Figures
):
    async with AsyncExitStack() as stack:
        killer = await stack.enter_async_context(KillerSite(fleet, inspector))
        sites = [
            await stack.enter_async_context(SmallSite(INNOCENT_SECONDS)) for _ in range(INNOCENTS)
        ]
        innocents = [await submit(url, site) for site in sites]
        guilty = await submit(url, killer)
        supervisor = asyncio.create_task(keep_one_worker(fleet))
        await inspector.wait_for(WAITING, expected=0, seconds=TIMEOUT_SECONDS)
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)
    ends = {row["id"]: (row["status"], row["error_code"]) for row in await inspector.rows(ENDS)}
    figures.count("workers killed by one job", killer.kills)
    figures.count(
        "of the jobs beside it, completed", list(ends.values()).count(("completed", None))
    )
    assert ends == {
        **dict.fromkeys(innocents, ("completed", None)),
        guilty: ("failed", "poison"),
    }
    assert killer.kills == 3
