"""The first signal: commit, release jobs, leave nothing behind. The second: exit at once."""

from __future__ import annotations

import asyncio
import signal
import time

import httpx
import pytest

from tests.faults.database_inspector import DatabaseInspector
from tests.faults.fleet import Fleet
from tests.faults.oracle import (
    Snapshot,
    differences,
    error_lines,
    left_connections,
    take_snapshot,
    violations,
)
from tests.faults.phases import Phase, held, phases_but, staged
from tests.fixtures.commands import COMMAND, Machine
from tests.fixtures.embedded import data_directory

MAX_SECONDS = 20
# What holds a job at its very end would also hold the record of its release.
RUNNING = phases_but(Phase.ENDING, Phase.COMMITTED)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("phase", RUNNING)
async def test_a_worker_that_is_stopped_releases_its_job_at_once(
    phase: Phase, url: str, fleet: Fleet, undisturbed: Snapshot
):
    inspector = fleet.inspector
    async with staged(url, inspector) as job:
        async with held(job, phase):
            holder = fleet.process_of((await inspector.job(job.id))["worker_id"])
            began = time.monotonic()
            assert await holder.stop() == 0
            assert time.monotonic() - began < MAX_SECONDS
            released = await inspector.value("SELECT clock_timestamp()")
        await inspector.wait_for_status(job.id, "completed", seconds=30)
        ended = await inspector.job(job.id)
        assert (ended["started_at"] - released).total_seconds() < 6
        assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
    assert (ended["attempt"], ended["rescues"]) == (1, 0)
    assert await violations(inspector, deaths=0) == []
    assert error_lines(holder.output) == []


@pytest.mark.timeout(120)
async def test_a_second_signal_ends_a_worker_at_once(
    url: str, inspector: DatabaseInspector, fleet: Fleet
):
    worker = await fleet.worker(concurrency=1)
    async with staged(url, inspector) as job, held(job, Phase.BODY):
        worker.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        began = time.monotonic()
        worker.process.send_signal(signal.SIGINT)
        assert await worker.wait() == 128 + signal.SIGINT
        assert time.monotonic() - began < 1


@pytest.mark.timeout(120)
async def test_a_group_of_workers_ends_as_one(url: str, inspector: DatabaseInspector, fleet: Fleet):
    group = fleet.launch(COMMAND, "worker", "--processes", "2", concurrency=1)
    await inspector.wait_for("SELECT count(*) FROM workers", expected=2, seconds=40)
    async with staged(url, inspector) as job, held(job, Phase.BATCH):
        began = time.monotonic()
        assert await group.stop() == 0
        assert time.monotonic() - began < MAX_SECONDS
        assert (await inspector.job(job.id))["status"] == "pending"
    assert await inspector.value("SELECT count(*) FROM workers WHERE slots > 0") == 0
    assert await left_connections(inspector) == []


@pytest.mark.timeout(120)
async def test_a_stopping_service_finishes_its_requests_and_releases_its_jobs(
    url: str, inspector: DatabaseInspector, fleet: Fleet
):
    service, address = await fleet.service(concurrency=1)
    lock = "LOCK TABLE domains IN ACCESS EXCLUSIVE MODE"
    async with staged(url, inspector) as job, httpx.AsyncClient(timeout=30) as client:
        async with held(job, Phase.BATCH):
            async with inspector.holding(lock):
                asked = asyncio.create_task(client.get(f"{address}/api/v3/domains"))
                await inspector.wait_for_blocked()
                service.process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.5)
            assert (await asked).status_code == 200
            assert await service.wait(MAX_SECONDS) == 0
        assert (await inspector.job(job.id))["status"] == "pending"
    assert await left_connections(inspector) == []
    assert await violations(inspector, deaths=0) == []
    assert error_lines(service.output) == []


@pytest.mark.timeout(120)
def test_a_service_leaves_neither_server_nor_lock_behind():
    with data_directory() as folder:
        machine = Machine(folder)
        with machine.service() as service:
            assert machine.postgres_processes() != []
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(MAX_SECONDS) == 0
        assert machine.postgres_processes() == []
        assert not (folder / "postgres" / "postmaster.pid").exists()
