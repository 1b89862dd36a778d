"""A worker is killed in each phase of a job: another one ends the job as if nothing had been."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.faults.eyes import Eyes
from tests.faults.fleet import Fleet
from tests.faults.oracle import Story, bad_words, differences, left_connections, story, violations
from tests.faults.phases import Phase, StagedJob, held, staged
from tests.faults.stage import DOCUMENTS

KILLS = int(os.environ.get("SITEATLAS_FAULT_KILLS", "200"))
SEED = int(os.environ.get("SITEATLAS_FAULT_SEED", "1504"))
AT_ONCE = 4
SLACK_SECONDS = 15
# Documents that can be open at the moment of a death: all but the index.
MOST_FETCHED_AGAIN = len(DOCUMENTS)


@dataclass(frozen=True, slots=True)
class Kill:
    """One death: where it happened and how long the job then waited for another worker."""

    phase: Phase
    seconds_to_rerun: float | None
    fetched_again: int


@pytest_asyncio.fixture
async def undisturbed(url: str, eyes: Eyes, fleet: Fleet) -> AsyncIterator[Story]:
    """The story of the same site when nothing happens."""
    await fleet.worker(concurrency=1)
    async with staged(url, eyes) as job:
        async with held(job, Phase.COMMITTED):
            pass
        yield await story(eyes, job.site.base)


async def kill_in(phase: Phase, job: StagedJob, fleet: Fleet) -> float | None:
    """Kill the worker of a job in a phase; gives the seconds until another one runs it."""
    async with held(job, phase):
        before = await job.eyes.job(job.id)
        fleet.holder(before["worker_id"]).kill()
        killed = await job.eyes.value("SELECT clock_timestamp()")
    if phase is Phase.COMMITTED:
        return None
    again = "SELECT fence > $2 FROM jobs WHERE id = $1"
    await job.eyes.wait_for(again, job.id, before["fence"], seconds=fleet.lease + SLACK_SECONDS)
    taken = (await job.eyes.job(job.id))["started_at"]
    return float((taken - killed).total_seconds())


async def killed_and_ended(phase: Phase, job: StagedJob, fleet: Fleet) -> Kill:
    """Kill in a phase and wait until the job has ended elsewhere."""
    seconds = await kill_in(phase, job, fleet)
    await job.eyes.wait_for_status(job.id, "completed", seconds=60)
    return Kill(phase, seconds, job.site.fetches().total() - len(DOCUMENTS))


@pytest.mark.faults_short
@pytest.mark.parametrize("phase", [Phase.BATCH, Phase.PUBLISHING], ids=lambda phase: phase.name)
async def test_a_job_whose_worker_is_killed_ends_as_if_undisturbed(
    phase: Phase, url: str, eyes: Eyes, fleet: Fleet, undisturbed: Story
):
    await fleet.worker(concurrency=1)
    async with staged(url, eyes) as job:
        kill = await killed_and_ended(phase, job, fleet)
        assert differences(undisturbed, await story(eyes, job.site.base)) == []
    assert kill.seconds_to_rerun is not None
    assert kill.seconds_to_rerun <= fleet.lease + SLACK_SECONDS
    assert await violations(eyes, deaths=1) == []
    assert await fleet.stop_all() == [0]
    assert await left_connections(eyes) == []
    assert [line for one in fleet.processes for line in bad_words(one.said)] == []
