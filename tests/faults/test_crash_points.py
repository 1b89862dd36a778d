"""A worker is killed in each phase of a job: another one ends the job as if nothing had been."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.faults.oracle import (
    Snapshot,
    differences,
    error_lines,
    left_connections,
    take_snapshot,
    violations,
)
from tests.faults.phases import COMPLETE, Phase, StagedJob, held, staged
from tests.faults.staged_site import DOCUMENTS
from tests.fixtures.waiting import wait_until

KILLS = int(os.environ.get("SITEATLAS_FAULT_KILLS", "200"))
SEED = int(os.environ.get("SITEATLAS_FAULT_SEED", "1504"))
AT_ONCE = 4
SLACK_SECONDS = 15
END_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Kill:
    """One death: where it happened and how long the job then waited for another worker."""

    phase: Phase
    seconds_to_rerun: float | None
    fetched_again: int


async def kill_in(phase: Phase, job: StagedJob, fleet: Fleet) -> float | None:
    """Kill the worker of a job in a phase; gives the seconds until another one runs it."""
    async with held(job, phase):
        before = await job.inspector.job(job.id)
        fleet.process_of(before["worker_id"]).kill()
        killed = await job.inspector.value("SELECT clock_timestamp()")
    if phase is Phase.COMMITTED:
        return None
    again = "SELECT fence > $2 FROM jobs WHERE id = $1"
    await job.inspector.wait_for(
        again, job.id, before["fence"], seconds=fleet.lease + SLACK_SECONDS
    )
    taken = (await job.inspector.job(job.id))["started_at"]
    return float((taken - killed).total_seconds())


async def killed_and_ended(phase: Phase, job: StagedJob, fleet: Fleet) -> Kill:
    """Kill in a phase and wait until the job has ended elsewhere."""
    seconds = await kill_in(phase, job, fleet)
    await job.inspector.wait_for_status(job.id, "completed", seconds=END_SECONDS)
    return Kill(phase, seconds, job.site.fetches().total() - len(DOCUMENTS))


async def shutdown_faults(fleet: Fleet, inspector: DatabaseInspector) -> list[str]:
    """What is wrong after all processes were shut down: exit codes, connections, logged errors."""
    statuses = await fleet.stop_all()
    return [
        *(f"ended with {status}" for status in statuses if status != 0),
        *await left_connections(inspector),
        *(line for one in fleet.processes for line in error_lines(one.output)),
    ]


@pytest.mark.faults_short
@pytest.mark.parametrize("phase", [Phase.ENDING], ids=lambda phase: phase.name)
async def test_a_job_whose_worker_is_killed_ends_as_if_undisturbed(
    phase: Phase, url: str, inspector: DatabaseInspector, fleet: Fleet, undisturbed: Snapshot
):
    async with staged(url, inspector) as job:
        kill = await killed_and_ended(phase, job, fleet)
        assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
    assert kill.seconds_to_rerun is not None
    assert kill.seconds_to_rerun <= fleet.lease + SLACK_SECONDS
    assert await violations(inspector, deaths=1) == []
    assert await shutdown_faults(fleet, inspector) == []


async def kill_at_gate(job: StagedJob, name: str, fleet: Fleet) -> None:
    """Kill whoever waits at a closed gate; the gate stays closed."""
    gate = job.site.gates[name]
    await wait_until(gate.reached.is_set, seconds=END_SECONDS)
    if name == "last":
        await wait_until_all_but_one_complete(job)
    gate.reached.clear()
    fleet.process_of((await job.inspector.job(job.id))["worker_id"]).kill()


async def wait_until_all_but_one_complete(job: StagedJob) -> None:
    """Wait until all documents but the last are committed."""
    await job.inspector.wait_for(COMPLETE, job.id, expected=len(DOCUMENTS) - 1, seconds=END_SECONDS)


@pytest.mark.timeout(180)
async def test_a_job_whose_workers_are_killed_again_and_again_ends_as_if_undisturbed(
    url: str, inspector: DatabaseInspector, fleet: Fleet, undisturbed: Snapshot
):
    gates = ("robots", "batch", "last")
    await fleet.workers(len(gates) - 1, concurrency=1)
    async with staged(url, inspector) as job:
        for name in gates:
            job.site.gates[name].close()
        await job.make_due()
        for name in gates:
            await kill_at_gate(job, name, fleet)
            job.site.gates[name].open()
        await inspector.wait_for_status(job.id, "completed", seconds=END_SECONDS)
        assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
    assert await violations(inspector, deaths=len(gates)) == []


@pytest.mark.timeout(180)
async def test_a_job_that_ends_three_workers_without_a_document_is_poison(
    url: str, inspector: DatabaseInspector, fleet: Fleet
):
    await fleet.workers(4, concurrency=1)
    async with staged(url, inspector) as job:
        job.site.gates["robots"].close()
        await job.make_due()
        for _ in range(3):
            await kill_at_gate(job, "robots", fleet)
        await inspector.wait_for_status(job.id, "failed", seconds=fleet.lease + SLACK_SECONDS)
    ended = await inspector.job(job.id)
    assert (ended["error_code"], ended["attempt"]) == ("poison", 0)
    assert await violations(inspector, deaths=3) == []


class Series:
    """Many kills, some at a time, over all phases in a fixed random order."""

    def __init__(self, url: str, fleet: Fleet, expected: Snapshot, figures: Figures) -> None:
        self._url = url
        self._fleet = fleet
        self._expected = expected
        self._figures = figures
        self._random = random.Random(SEED)
        self._phases: list[Phase] = []

    async def rounds(self, kills: int) -> AsyncIterator[tuple[list[Phase], list[str]]]:
        """The phases of each round of kills, and what was wrong after it."""
        done = 0
        while done < kills:
            await self._restock()
            phases = [self._next_phase() for _ in range(min(AT_ONCE, kills - done))]
            yield phases, await self._round(phases)
            done += len(phases)
            await self._forget()

    async def _restock(self) -> None:
        """Twice as many workers as will be killed, so that as many are there to go on."""
        living = sum(one.process.poll() is None for one in self._fleet.processes)
        await self._fleet.workers(2 * AT_ONCE - living, concurrency=1)

    def _next_phase(self) -> Phase:
        if not self._phases:
            self._phases = list(Phase)
            self._random.shuffle(self._phases)
        return self._phases.pop()

    async def _round(self, phases: list[Phase]) -> list[str]:
        inspector = self._fleet.inspector
        async with AsyncExitStack() as stack:
            jobs = [await stack.enter_async_context(staged(self._url, inspector)) for _ in phases]
            pairs = zip(phases, jobs, strict=True)
            kills = await asyncio.gather(
                *(killed_and_ended(phase, job, self._fleet) for phase, job in pairs),
                return_exceptions=True,
            )
            wrong = [
                difference
                for job in jobs
                for difference in differences(
                    self._expected, await take_snapshot(inspector, job.site.base)
                )
            ]
        deaths = sum(phase is not Phase.COMMITTED for phase in phases)
        wrong += await violations(inspector, deaths=deaths)
        wrong += [repr(kill) for kill in kills if isinstance(kill, BaseException)]
        self._note(kills)
        self._figures.count("double or missing effects", len(wrong))
        return wrong

    def _note(self, kills: list[Kill | BaseException]) -> None:
        self._figures.count("kill -9 of a worker", len(kills))
        self._figures.count("jobs lost", 0)
        for kill in kills:
            if isinstance(kill, BaseException):
                self._figures.count("jobs lost")
                continue
            self._figures.sample("documents fetched again per kill", kill.fetched_again)
            if kill.seconds_to_rerun is not None:
                self._figures.sample(
                    f"seconds from kill to rerun, lease {self._fleet.lease:g} s",
                    kill.seconds_to_rerun,
                )

    async def _forget(self) -> None:
        """Truncate the tables, so that the oracle does not take longer each round."""
        tables = "domains, jobs, scans, sitemaps, sitemap_urls, candidates, job_attempts"
        await self._fleet.inspector.rows(f"TRUNCATE {tables}, url_changes, feed_events CASCADE")
        await self._fleet.inspector.rows("UPDATE feed_head SET retained_from = seq")


@pytest.mark.timeout(3600)
async def test_no_kill_in_any_phase_loses_or_doubles_anything(
    url: str, inspector: DatabaseInspector, fleet: Fleet, undisturbed: Snapshot, figures: Figures
):
    figures.count("seed of the kills", SEED)
    async for phases, wrong in Series(url, fleet, undisturbed, figures).rounds(KILLS):
        assert wrong == [], f"seed {SEED}, phases {phases}"
    assert await shutdown_faults(fleet, inspector) == []
