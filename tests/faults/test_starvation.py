"""No starvation: neither a flood of jobs of one user nor hostile sites delay the jobs of others.

The service and the sites are real processes. `SITEATLAS_FAULTS=full` runs all attacks and
checks the measurements against limits; the short selection only checks that all are served.
"""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from siteatlas.queue.fence import Priority
from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures, percentile
from tests.faults.fleet import Fleet
from tests.faults.hostile_sites import site
from tests.faults.starvation import Probe, Target, attacked, note, submit_as

ENDLESS = ("flood", "drip", "chain", "wide")
DEFAULT_SLOTS, SLOTS_FOR_ALL = 32, 128
PROBES = 12
PROBE_EVERY = 4.0
FLOOD = 5_000
MAX_START_SECONDS = 2.0
MAX_HEALTH_SECONDS = 0.25
MAX_MIB = 95  # 100 MB
ADD_USER = "INSERT INTO users (id, name) VALUES ($1, $2)"
MEDIAN_JOB = """
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - started_at))
    FROM jobs WHERE status = 'completed'
"""


def hostile(each: int) -> list[str]:
    """So many silent sites, as many that ask for delays, and as many that never end."""
    endless = [site(ENDLESS[n % len(ENDLESS)], n) for n in range(each)]
    return [site(kind, n) for kind in ("silent", "delayed") for n in range(each)] + endless


async def honest_scans(target: Target, count: int, pause: float) -> tuple[list[float], list[float]]:
    """Seconds to the start and to the end of one interactive scan after the other."""
    starts, ends = [], []
    for number in range(count):
        job = await target.submit(site("honest", number))
        starts.append(await target.seconds_to(job, "started_at", max_seconds=60))
        ends.append(await target.seconds_to(job, "finished_at", max_seconds=60))
        await asyncio.sleep(pause)
    return starts, ends


@pytest.mark.timeout(300)
@pytest.mark.parametrize("slots", [DEFAULT_SLOTS, SLOTS_FOR_ALL])
@pytest.mark.parametrize("run", range(3))
async def test_a_person_does_not_wait_for_hostile_sites(
    run: int, slots: int, fleet: Fleet, figures: Figures
):
    name = f"hostile sites, {slots} slots"
    async with attacked(fleet, concurrency=slots) as target:
        await target.seconds_to(
            await target.submit(site("honest", 99)), "finished_at", max_seconds=60
        )
        async with target.probed() as probe:
            await target.submit_batch(hostile(32))
            starts, ends = await honest_scans(target, PROBES, PROBE_EVERY)
        for start, end in zip(starts, ends, strict=True):
            figures.sample(f"{name}: start of an honest scan, s", start)
            figures.sample(f"{name}: end of an honest scan, s", end)
        note(figures, name, probe)
        figures.sample(f"{name}: jobs held", await target.held())
        assert target.faults() == []
    assert_usable(probe, max(starts))
    # Memory grows with the jobs that are held: with more slots it is only measured.
    assert slots > DEFAULT_SLOTS or probe.memory_rise < MAX_MIB


def assert_usable(probe: Probe, slowest_start: float) -> None:
    assert slowest_start <= MAX_START_SECONDS
    assert percentile(probe.seconds, 0.99) <= MAX_HEALTH_SECONDS


@pytest.mark.faults_short
@pytest.mark.timeout(120)
async def test_an_honest_site_is_scanned_despite_hostile_ones(fleet: Fleet):
    async with attacked(fleet, concurrency=8) as target:
        await target.submit_batch(hostile(8))
        await fleet.inspector.wait_for("SELECT count(*) >= 7 FROM jobs WHERE status = 'processing'")
        _, ends = await honest_scans(target, 1, 0)
        assert await target.held() >= 7
        assert len(ends) == 1
        assert target.faults() == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("priority", [Priority.BATCH, Priority.INTERACTIVE])
async def test_a_user_with_one_site_does_not_wait_for_five_thousand_of_another(
    priority: Priority, url: str, inspector: DatabaseInspector, fleet: Fleet, figures: Figures
):
    async with attacked(fleet) as target:
        sites = [site("tiny", number) for number in range(FLOOD)]
        if priority is Priority.BATCH:
            await target.submit_batch(sites)
        else:
            await submit_each(target, sites)
        await inspector.wait_for("SELECT count(*) >= 40 FROM jobs WHERE status = 'completed'")
        other = await add_user(inspector)
        job = await submit_as(url, other, site("honest", 0), priority)
        start = await target.seconds_to(job, "started_at", max_seconds=120)
        median = float(await inspector.value(MEDIAN_JOB))
        waiting = await inspector.value("SELECT count(*) FROM jobs WHERE status = 'pending'")
        name = f"{FLOOD} sites of another user, {priority.name.lower()}"
        figures.sample(f"{name}: start, s", start)
        figures.sample(f"{name}: median job, s", median)
        figures.sample(f"{name}: still waiting", waiting)
        assert target.faults() == []
    assert waiting > 0
    assert start <= 2 * median


async def submit_each(target: Target, sites: list[str]) -> None:
    """Submit sites one by one, some requests at the same time."""
    turns = asyncio.Semaphore(16)

    async def submit(one: str) -> None:
        async with turns:
            await target.submit(one)

    await asyncio.gather(*map(submit, sites))


async def add_user(inspector: DatabaseInspector) -> UUID:
    user = uuid4()
    await inspector.rows(ADD_USER, user, str(user))
    return user
