"""A worker is frozen past its lease and wakes up after another one has ended its job."""

from __future__ import annotations

import pytest

from tests.faults.database_inspector import DatabaseInspector
from tests.faults.fleet import Fleet
from tests.faults.oracle import Snapshot, differences, take_snapshot, violations
from tests.faults.phases import Phase, held, phases_but, staged, submit
from tests.faults.staged_site import SmallSite
from tests.fixtures.waiting import wait_until

# A frozen worker's transaction ends after 15 s, its COPY after 40 s.
TIMEOUT_SECONDS = 120


@pytest.mark.timeout(180)
@pytest.mark.parametrize("phase", phases_but(Phase.COMMITTED))
async def test_a_worker_that_wakes_up_too_late_writes_nothing(
    phase: Phase, url: str, inspector: DatabaseInspector, fleet: Fleet, undisturbed: Snapshot
):
    async with staged(url, inspector) as job:
        async with held(job, phase):
            frozen = fleet.process_of((await inspector.job(job.id))["worker_id"])
            frozen.freeze()
        await inspector.wait_for_status(job.id, "completed", seconds=TIMEOUT_SECONDS)
        ended = await inspector.job(job.id)
        assert ended["fence"] > 1
        frozen.thaw()
        await wait_until(lambda: "lease_lost" in frozen.output)
        assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
        assert await inspector.job(job.id) == ended
    assert await violations(inspector, deaths=1) == []
    async with SmallSite() as another:
        await inspector.wait_for_status(await submit(url, another), "completed")
