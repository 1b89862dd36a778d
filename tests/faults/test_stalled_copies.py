"""A worker freezes, or its host vanishes, in the middle of a COPY: no limit of the server ends it."""

from __future__ import annotations

import time

import pytest

from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.faults.oracle import Snapshot, differences, take_snapshot, violations
from tests.faults.phases import Phase, StagedJob, held, staged
from tests.fixtures.proxy import ProxyMode, running_proxy

# A COPY is taken for stalled after 40 s; the job may be put off a few times until then.
TIMEOUT_SECONDS = 120
STALLED = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND state = 'active' AND wait_event = 'ClientRead' AND query LIKE 'COPY%sitemap_urls%'
"""


async def _ended_once_and_whole(
    job: StagedJob, inspector: DatabaseInspector, undisturbed: Snapshot
) -> None:
    ended = await inspector.job(job.id)
    assert (ended["attempt"], ended["status"]) == (1, "completed")
    assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
    # The next holder may have got by without meeting the rows of the stalled COPY.
    await inspector.wait_for(STALLED, expected=0, seconds=TIMEOUT_SECONDS)
    assert await violations(inspector, deaths=1) == []


@pytest.mark.timeout(240)
async def test_a_worker_frozen_inside_a_copy_costs_no_attempt(
    url: str, inspector: DatabaseInspector, fleet: Fleet, undisturbed: Snapshot, figures: Figures
):
    async with staged(url, inspector) as job:
        async with held(job, Phase.COPYING):
            frozen = fleet.process_of((await inspector.job(job.id))["worker_id"])
            frozen.freeze()
        await inspector.wait_for(STALLED, expected=1)
        began = time.monotonic()
        await inspector.wait_for_status(job.id, "completed", seconds=TIMEOUT_SECONDS)
        figures.sample("seconds from a freeze inside a COPY to the end", time.monotonic() - began)
        await _ended_once_and_whole(job, inspector, undisturbed)


@pytest.mark.timeout(240)
async def test_a_host_that_vanishes_inside_a_copy_costs_no_attempt(
    url: str,
    client_url: str,
    inspector: DatabaseInspector,
    fleet: Fleet,
    undisturbed: Snapshot,
    figures: Figures,
):
    await fleet.stop_all()
    async with running_proxy(client_url) as proxy, staged(url, inspector) as job:
        lost = await fleet.worker(url=proxy.url, concurrency=1)
        async with held(job, Phase.COPYING):
            proxy.set_mode(ProxyMode.BLACKHOLE)
            lost.kill()
        await inspector.wait_for(STALLED, expected=1)
        await fleet.worker(concurrency=1)
        began = time.monotonic()
        await inspector.wait_for_status(job.id, "completed", seconds=TIMEOUT_SECONDS)
        figures.sample(
            "seconds from a lost host inside a COPY to the end", time.monotonic() - began
        )
        await _ended_once_and_whole(job, inspector, undisturbed)
