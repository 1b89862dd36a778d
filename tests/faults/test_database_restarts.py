"""PostgreSQL is restarted, or crashes, under running jobs: none is lost, failed or stored in part."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.cluster import IMMEDIATE, RestartableServer
from tests.faults.eyes import Eyes
from tests.faults.fleet import Fleet
from tests.faults.oracle import Story, bad_words, differences, story, violations
from tests.faults.phases import Phase, held, staged


@pytest.mark.faults_short
@pytest.mark.parametrize("how", [IMMEDIATE], ids=lambda how: how.name)
async def test_a_crash_of_the_database_takes_no_row_from_a_document_that_goes_on(
    how, url: str, eyes: Eyes, fleet: Fleet, undisturbed: Story, cluster: RestartableServer
):
    async with staged(url, eyes) as job:
        async with held(job, Phase.BATCH):
            await asyncio.to_thread(cluster.restart, how)
        await eyes.wait_for_status(job.id, "completed", seconds=40)
        assert differences(undisturbed, await story(eyes, job.site.base)) == []
        ended = await eyes.job(job.id)
    assert (ended["attempt"], ended["rescues"]) == (1, 0)
    assert await violations(eyes) == []
    assert [line for one in fleet.processes for line in bad_words(one.said)] == []
