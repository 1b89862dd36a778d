"""PostgreSQL is restarted, or crashes, under running jobs: none is lost, failed or stored in part."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from tests.faults.cluster import FAST, IMMEDIATE, RestartableServer
from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.faults.load import Load, running_load
from tests.faults.oracle import Snapshot, differences, error_lines, take_snapshot, violations
from tests.faults.phases import Phase, held, staged
from tests.fixtures.pooler import running_pooler
from tests.fixtures.waiting import wait_until

RESTARTS = int(os.environ.get("SITEATLAS_FAULT_RESTARTS", "50"))
SEED = int(os.environ.get("SITEATLAS_FAULT_SEED", "1504"))
RECOVERY_SECONDS = 40
BOTH = pytest.mark.parametrize("how", [FAST, IMMEDIATE], ids=["fast", "immediate"])


@pytest.mark.faults_short
async def test_a_crash_of_the_database_takes_no_row_from_a_document_that_goes_on(
    url: str,
    inspector: DatabaseInspector,
    fleet: Fleet,
    undisturbed: Snapshot,
    cluster: RestartableServer,
):
    await restart_in(Phase.BATCH, IMMEDIATE, url, fleet, undisturbed, cluster)


@BOTH
@pytest.mark.timeout(180)
@pytest.mark.parametrize("phase", list(Phase), ids=lambda phase: phase.name)
async def test_a_job_ends_as_if_undisturbed_when_the_database_restarts_in_any_phase(
    phase: Phase,
    how: signal.Signals,
    url: str,
    fleet: Fleet,
    undisturbed: Snapshot,
    cluster: RestartableServer,
):
    await restart_in(phase, how, url, fleet, undisturbed, cluster)


async def restart_in(
    phase: Phase,
    how: signal.Signals,
    url: str,
    fleet: Fleet,
    expected: Snapshot,
    cluster: RestartableServer,
) -> None:
    """Restart the server while a job is in a phase; the job keeps its attempts and its rows."""
    inspector = fleet.inspector
    async with staged(url, inspector) as job:
        async with held(job, phase):
            await asyncio.to_thread(cluster.restart, how)
        await inspector.wait_for_status(job.id, "completed", seconds=RECOVERY_SECONDS)
        assert differences(expected, await take_snapshot(inspector, job.site.base)) == []
        ended = await inspector.job(job.id)
    assert (ended["attempt"], ended["rescues"]) == (1, 0)
    assert await violations(inspector) == []
    assert [line for one in fleet.processes for line in error_lines(one.output)] == []


@asynccontextmanager
async def loaded(fleet: Fleet, url: str) -> AsyncIterator[Load]:
    """An API, two workers and a steady load on a database."""
    _, address = await fleet.service("--no-scheduler", url=url)
    await fleet.workers(2, url=url, concurrency=8)
    async with running_load(address) as load:
        await wait_until(lambda: len(load.accepted) > 3, seconds=RECOVERY_SECONDS)
        yield load


async def seconds_to_recover(inspector: DatabaseInspector) -> float:
    """Seconds until a job is claimed and one is submitted after this moment."""
    began = time.monotonic()
    since = await inspector.value("SELECT clock_timestamp()")
    query = "SELECT count(*) > 0 FROM jobs WHERE started_at > $1 AND created_at > $1"
    await inspector.wait_for(query, since, seconds=RECOVERY_SECONDS)
    return time.monotonic() - began


async def everything_ended(fleet: Fleet, load: Load) -> None:
    """Each accepted job ended once, nobody saw a 500, and no log tells of a fault of ours."""
    await load.stop()
    inspector = fleet.inspector
    waiting = "SELECT count(*) FROM jobs WHERE status IN ('pending', 'processing')"
    await inspector.wait_for(waiting, expected=0, seconds=RECOVERY_SECONDS)
    ended = {
        str(row["job_id"]): row["status"] for row in await inspector.rows("SELECT * FROM jobs")
    }
    lost = {job: ended.get(job) for job in load.accepted if ended.get(job) != "completed"}
    assert lost == {}
    assert set(load.answers) <= {202, 503}
    assert await violations(inspector) == []
    assert [line for one in fleet.processes for line in error_lines(one.output)] == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", ["direct", "pooled"])
async def test_every_accepted_job_ends_though_the_database_restarts_again_and_again(
    way: str,
    url: str,
    fleet: Fleet,
    cluster: RestartableServer,
    figures: Figures,
    request: pytest.FixtureRequest,
):
    dice = random.Random(SEED)
    with ExitStack() as stack:
        through = url
        if way == "pooled":
            program = request.getfixturevalue("pgbouncer_program")
            through = stack.enter_context(running_pooler(program, url)).url
        async with loaded(fleet, through) as load:
            for _ in range(RESTARTS // 2):
                await asyncio.sleep(dice.uniform(0, 0.7))
                how = dice.choice([FAST, IMMEDIATE])
                await asyncio.to_thread(cluster.restart, how)
                recovered = await seconds_to_recover(fleet.inspector)
                figures.count("restarts of PostgreSQL under load")
                figures.sample(f"seconds from restart to jobs running, {way}", recovered)
            await everything_ended(fleet, load)
        figures.count("jobs accepted under restarts", len(load.accepted))
        figures.count("of them lost", 0)


@pytest.mark.timeout(180)
async def test_killed_backends_are_not_noticed_by_anybody(
    url: str, inspector: DatabaseInspector, fleet: Fleet, figures: Figures
):
    victims = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'siteatlas' ORDER BY random() LIMIT 1
    """
    async with loaded(fleet, url) as load:
        for _ in range(60):
            await asyncio.sleep(0.2)
            figures.count("backends killed under load", len(await inspector.rows(victims)))
        await everything_ended(fleet, load)


@pytest.mark.timeout(180)
async def test_an_outage_longer_than_the_lease_blames_no_job_and_is_logged_once(
    url: str,
    inspector: DatabaseInspector,
    fleet: Fleet,
    cluster: RestartableServer,
    undisturbed: Snapshot,
):
    worker = fleet.processes[0]
    async with staged(url, inspector) as job:
        async with held(job, Phase.BODY):
            for _ in range(3):
                await asyncio.to_thread(cluster.restart, FAST, down_seconds=fleet.lease * 2)
                back = "SELECT count(*) > 0 FROM workers WHERE last_seen_at > $1"
                since = await inspector.value("SELECT clock_timestamp()")
                await inspector.wait_for(back, since)
        await inspector.wait_for_status(job.id, "completed", seconds=RECOVERY_SECONDS)
        assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
    assert worker.output.count(" database_unavailable ") <= 3 * 2
    assert [line for one in fleet.processes for line in error_lines(one.output)] == []
