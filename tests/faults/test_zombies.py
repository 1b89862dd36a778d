"""A worker is frozen past its lease and wakes up after another one has ended its job."""

from __future__ import annotations

import pytest

from tests.faults.eyes import Eyes
from tests.faults.fleet import Fleet
from tests.faults.oracle import Story, differences, story, violations
from tests.faults.phases import Phase, held, staged, submit
from tests.faults.stage import SmallSite
from tests.fixtures.waiting import wait_until

# A frozen worker's transaction ends after 15 s, and a waiting one is repeated every 5 s.
PATIENCE = 60
PHASES = [phase for phase in Phase if phase is not Phase.COMMITTED]


async def freeze_and_thaw(
    phase: Phase, url: str, eyes: Eyes, fleet: Fleet, expected: Story
) -> None:
    """Freeze the holder in a phase, let another one finish, thaw it, and look at what is stored."""
    async with staged(url, eyes) as job:
        async with held(job, phase):
            frozen = fleet.holder((await eyes.job(job.id))["worker_id"])
            frozen.freeze()
        await eyes.wait_for_status(job.id, "completed", seconds=PATIENCE)
        ended = await eyes.job(job.id)
        assert ended["fence"] > 1
        frozen.thaw()
        await wait_until(lambda: "lease_lost" in frozen.said)
        assert differences(expected, await story(eyes, job.site.base)) == []
        assert await eyes.job(job.id) == ended
    assert await violations(eyes, deaths=1) == []
    async with SmallSite() as another:
        await eyes.wait_for_status(await submit(url, another), "completed")


@pytest.mark.faults_short
async def test_a_worker_that_wakes_up_too_late_writes_nothing(
    url: str, eyes: Eyes, fleet: Fleet, undisturbed: Story
):
    await freeze_and_thaw(Phase.BATCH, url, eyes, fleet, undisturbed)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
async def test_a_worker_that_wakes_up_too_late_writes_nothing_in_any_phase(
    phase: Phase, url: str, eyes: Eyes, fleet: Fleet, undisturbed: Story
):
    await freeze_and_thaw(phase, url, eyes, fleet, undisturbed)
