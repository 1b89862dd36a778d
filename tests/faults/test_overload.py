"""More work than the machine can do within the leases: it gets done, and no job is blamed."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

import pytest

from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.faults.oracle import violations
from tests.faults.phases import submit
from tests.faults.staged_site import SmallSite

WORKERS = 6
SITES = 500
LEASE = 1.0
TIMEOUT_SECONDS = 240
COMPLETED = "SELECT count(*) FROM jobs WHERE status = 'completed'"
CLAIMS = "SELECT sum(fence)::int FROM jobs"
LOSSES = "SELECT count(*) FROM job_attempts WHERE outcome = 'rescued'"
DEATHS = "SELECT count(*) FROM job_attempts WHERE error_code = 'lease_expired'"


@pytest.mark.timeout(420)
async def test_workers_that_are_too_slow_for_their_leases_finish_and_blame_no_job(
    url: str, inspector: DatabaseInspector, fleet: Fleet, figures: Figures
):
    async with AsyncExitStack() as stack:
        sites = [await stack.enter_async_context(SmallSite()) for _ in range(SITES)]
        for site in sites:
            await submit(url, site)
        began = time.monotonic()
        await fleet.workers(WORKERS, lease_seconds=LEASE)
        try:
            await inspector.wait_for(COMPLETED, expected=SITES, seconds=TIMEOUT_SECONDS)
        finally:
            figures.sample("seconds of an overload", time.monotonic() - began)
            for name, query in (
                ("jobs completed under overload", COMPLETED),
                ("claims under overload", CLAIMS),
                ("leases lost under overload", LOSSES),
            ):
                figures.count(name, await inspector.value(query))
    assert all(one.process.poll() is None for one in fleet.processes)
    # A worker that was rescued from takes the blame back with its next heartbeat.
    await inspector.wait_for(DEATHS, expected=0, seconds=10)
    assert await violations(inspector) == []
