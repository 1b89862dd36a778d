"""`siteatlas scheduler status` with running workers and with killed ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import update

from siteatlas.net.address import parse_site
from siteatlas.queue.fence import WorkerReport, report_worker
from siteatlas.queue.submission import submit_site
from siteatlas.storage.models import LOCAL_USER_ID, Job, Worker
from siteatlas.storage.session import Database
from tests.fixtures.commands import Machine
from tests.fixtures.database import transaction

# A tick that has passed is not shown as the next one, and the tests may run long after the import.
NOW = datetime.now(UTC).replace(microsecond=0)
INTERVAL = timedelta(hours=5)
LONG_AGO = NOW - 2 * INTERVAL


def report(name: str, tick: datetime) -> WorkerReport:
    return WorkerReport(name, "host", 1, "0.1", 4, 0, tick, tick + INTERVAL)


async def kill(name: str) -> None:
    """Leave the row of a worker as one that was killed leaves it."""
    async with transaction() as session:
        dead = update(Worker).where(Worker.id == name)
        await session.execute(dead.values(last_seen_at=LONG_AGO))


@pytest_asyncio.fixture
async def here(database: Database, database_url: str, tmp_path: Path) -> Machine:
    async with transaction() as session:
        await report_worker(session, report("killed", LONG_AGO))
        await report_worker(session, report("living", NOW))
    await kill("killed")
    return Machine(tmp_path, {"DATABASE_URL": database_url})


def test_only_living_workers_are_shown_and_tick(here: Machine):
    state = here.json("scheduler", "status")
    assert [worker["id"] for worker in state["workers"]] == ["living"]
    assert datetime.fromisoformat(state["next_tick_at"]) == NOW + INTERVAL
    words = here.run("scheduler", "status").stdout
    assert "killed" not in words
    assert f"{LONG_AGO + INTERVAL:%H:%M:%S}" not in words


async def test_without_a_living_worker_no_tick_comes_but_the_last_one_is_known(here: Machine):
    await kill("living")
    result = here.run("scheduler", "status", "--json")
    state = json.loads(result.stdout)
    assert (state["workers"], state["next_tick_at"]) == ([], None)
    assert datetime.fromisoformat(state["last_tick_at"]) == NOW


@pytest.mark.full
async def test_a_job_that_waits_for_its_time_is_not_the_oldest_that_waits(here: Machine):
    await queue_jobs({"snoozed": (NOW + timedelta(hours=1), 1)})
    assert here.json("scheduler", "status")["oldest_pending_at"] is None
    await queue_jobs({"urgent": (NOW, 1), "patient": (LONG_AGO, 9)})
    state = here.json("scheduler", "status")
    assert state["jobs"]["pending"] == 3
    assert datetime.fromisoformat(state["oldest_pending_at"]) == LONG_AGO


async def queue_jobs(jobs: dict[str, tuple[datetime, int]]) -> None:
    """Queue a job for each name, with the time from which it may run and its priority."""
    async with transaction() as session:
        for name, (run_at, priority) in jobs.items():
            address = parse_site(f"{name}.example")
            job = await submit_site(session, address, created_by=LOCAL_USER_ID)
            change = update(Job).where(Job.id == job.id)
            await session.execute(change.values(run_at=run_at, priority=priority))
