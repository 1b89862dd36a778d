"""The connection to the database is slow, broken or drops everything: slower, but correct."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.faults.database_inspector import DatabaseInspector
from tests.faults.fleet import Fleet
from tests.faults.oracle import Snapshot, differences, error_lines, take_snapshot, violations
from tests.faults.phases import Phase, held, staged
from tests.fixtures.pooler import running_pooler
from tests.fixtures.proxy import ProxyMode, running_proxy
from tests.fixtures.waiting import wait_until

TIMEOUT_SECONDS = 90
STOP_SECONDS = 20


@pytest.mark.timeout(180)
async def test_a_slow_way_to_the_database_only_costs_time(
    url: str, inspector: DatabaseInspector, fleet: Fleet, undisturbed: Snapshot
):
    await fleet.stop_all()
    async with running_proxy(url) as proxy, staged(url, inspector) as job:
        proxy.delay = 0.05
        await fleet.worker(url=proxy.url, lease_seconds=20)
        await job.make_due()
        await inspector.wait_for_status(job.id, "completed", seconds=TIMEOUT_SECONDS)
        assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
        assert (await inspector.job(job.id))["fence"] == 1
        await fleet.stop_all()
    assert await violations(inspector, deaths=0) == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize("phase", [Phase.ROBOTS, Phase.BATCH, Phase.PUBLISHING, Phase.ENDING])
async def test_cut_connections_cost_no_job_and_no_attempt(
    phase: Phase, url: str, inspector: DatabaseInspector, fleet: Fleet, undisturbed: Snapshot
):
    await fleet.stop_all()
    async with running_proxy(url) as proxy, staged(url, inspector) as job:
        await fleet.worker(url=proxy.url)
        async with held(job, phase):
            proxy.cut()
        await inspector.wait_for_status(job.id, "completed", seconds=TIMEOUT_SECONDS)
        assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
        ended = await inspector.job(job.id)
        await fleet.stop_all()
    assert (ended["attempt"], ended["rescues"]) == (1, 0)
    assert await violations(inspector) == []
    assert [line for one in fleet.processes for line in error_lines(one.output)] == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("phase", [Phase.ROBOTS, Phase.BATCH, Phase.BETWEEN])
async def test_a_worker_in_a_black_hole_stops_its_job_and_another_one_ends_it(
    phase: Phase, url: str, inspector: DatabaseInspector, fleet: Fleet, undisturbed: Snapshot
):
    await fleet.stop_all()
    async with running_proxy(url) as proxy, staged(url, inspector) as job:
        lonely = await fleet.worker(url=proxy.url)
        async with held(job, phase):
            proxy.set_mode(ProxyMode.BLACKHOLE)
            await fleet.worker()
            await wait_until(lambda: "lease_lost" in lonely.output, seconds=TIMEOUT_SECONDS)
        await inspector.wait_for_status(job.id, "completed", seconds=TIMEOUT_SECONDS)
        proxy.set_mode(ProxyMode.PASS)
        await asyncio.sleep(fleet.lease)
        assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
    assert await violations(inspector, deaths=1) == []


@pytest.mark.timeout(120)
async def test_a_worker_in_a_black_hole_still_stops_on_sigterm(
    url: str, inspector: DatabaseInspector, fleet: Fleet
):
    async with running_proxy(url) as proxy, staged(url, inspector) as job:
        lonely = await fleet.worker(url=proxy.url)
        async with held(job, Phase.BODY):
            proxy.set_mode(ProxyMode.BLACKHOLE)
            began = time.monotonic()
            assert await lonely.stop() == 0
    assert time.monotonic() - began < STOP_SECONDS


@pytest.mark.timeout(240)
@pytest.mark.pgbouncer
@pytest.mark.parametrize("place", ["before the pooler", "behind the pooler"])
async def test_resets_around_the_pooler_cost_no_job(
    place: str,
    url: str,
    inspector: DatabaseInspector,
    fleet: Fleet,
    undisturbed: Snapshot,
    pgbouncer_program: str,
):
    await fleet.stop_all()
    async with running_proxy(url) as behind:
        with running_pooler(pgbouncer_program, behind.url) as pooler:
            async with running_proxy(pooler.url) as before, staged(url, inspector) as job:
                proxy = before if place == "before the pooler" else behind
                await fleet.worker(url=before.url)
                async with held(job, Phase.BATCH):
                    proxy.cut()
                await inspector.wait_for_status(job.id, "completed", seconds=TIMEOUT_SECONDS)
                assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
                await fleet.stop_all()
    assert await violations(inspector) == []
