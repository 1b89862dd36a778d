"""Many schedulers, submitters and batches at the same time, and a worker whose clock is wrong."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import httpx
import pytest

from tests.faults.database_inspector import DatabaseInspector
from tests.faults.fleet import Fleet
from tests.faults.oracle import Snapshot, differences, error_lines, take_snapshot, violations
from tests.faults.phases import Phase, held, staged, submit
from tests.faults.staged_site import SmallSite
from tests.fixtures.commands import COMMAND

DUE = """
    INSERT INTO domains (domain, base_url, created_by, watched, next_scan_at)
    SELECT $1, 'http://' || $1 || '/', id, true, now() FROM users ORDER BY id LIMIT 1
"""
# The counters of a site whose scan ended unpublished are counted later, in the background.
COUNTERS_EQUAL_ROWS = """
    SELECT url_count = (SELECT count(*) FROM sitemaps m JOIN sitemap_urls u ON u.sitemap_id = m.id
    WHERE m.domain_id = domains.id AND u.removed_at IS NULL) FROM domains WHERE domain = $1
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("schedulers", [2, 5, 10])
async def test_a_due_site_is_queued_once_however_many_schedulers_there_are(
    schedulers: int, inspector: DatabaseInspector, fleet: Fleet
):
    async with AsyncExitStack() as stack:
        sites = [await stack.enter_async_context(SmallSite()) for _ in range(15)]
        for site in sites:
            await inspector.rows(DUE, site.host_port)
        await fleet.workers(schedulers, lease_seconds=60)
        done = "SELECT count(*) FROM jobs WHERE status = 'completed'"
        await inspector.wait_for(done, expected=len(sites), seconds=60)
        assert set(await fleet.stop_all()) == {0}
    jobs = await inspector.rows("SELECT dedup_key, count(*) FROM jobs GROUP BY 1")
    assert sorted(jobs) == sorted((site.host_port, 1) for site in sites)
    assert await violations(inspector, deaths=0) == []


@pytest.mark.faults_short
async def test_two_hundred_submits_of_one_site_at_once_are_one_job(
    inspector: DatabaseInspector, fleet: Fleet
):
    service, address = await fleet.service("--no-scheduler")
    limits = httpx.Limits(max_connections=200)
    async with SmallSite() as site, httpx.AsyncClient(limits=limits, timeout=30) as client:
        body = {"base_url": site.base}
        posts = [client.post(f"{address}/api/v3/sitemap/scan", json=body) for _ in range(200)]
        answers = await asyncio.gather(*posts)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert sum(not answer.json()["deduplicated"] for answer in answers) == 1
    assert await inspector.value("SELECT count(*) FROM jobs") == 1
    assert error_lines(service.output) == []


async def test_batches_in_opposite_order_do_not_stop_each_other(
    inspector: DatabaseInspector, fleet: Fleet
):
    service, address = await fleet.service("--no-scheduler")
    names = [f"site-{number:03d}.example.com" for number in range(60)]
    async with httpx.AsyncClient(timeout=30) as client:
        route = f"{address}/api/v3/sitemap/batch/create"
        orders = [names, names[::-1], names[1::2] + names[::2]] * 4
        posts = [client.post(route, json={"domains": order}) for order in orders]
        answers = await asyncio.gather(*posts)
    assert [answer.status_code for answer in answers] == [202] * len(orders)
    assert await inspector.value("SELECT count(*) FROM jobs") == len(names)
    assert await violations(inspector) == []
    assert error_lines(service.output) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("shift", ["+1h", "-1h"])
async def test_a_worker_whose_clock_is_an_hour_off_changes_nothing(
    shift: str,
    url: str,
    inspector: DatabaseInspector,
    fleet: Fleet,
    undisturbed: Snapshot,
    faketime_program: str,
):
    command = ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", faketime_program, "-f", shift]
    await fleet.processes[0].stop()
    wrong = fleet.launch(*command, COMMAND, "worker", concurrency=4)
    await inspector.wait_for("SELECT count(*) FROM workers WHERE slots = 4", expected=1, seconds=40)
    async with AsyncExitStack() as stack:
        jobs = [await stack.enter_async_context(staged(url, inspector)) for _ in range(4)]
        for job in jobs:
            job.site.gates["batch"].close()
            await job.make_due()
        await asyncio.sleep(fleet.lease * 2)
        for job in jobs:
            job.site.open_all()
            await inspector.wait_for_status(job.id, "completed", seconds=60)
            assert differences(undisturbed, await take_snapshot(inspector, job.site.base)) == []
    assert await violations(inspector, deaths=0) == []
    assert await inspector.value("SELECT max(fence) FROM jobs") == 1
    assert "job_claimed" in wrong.output


async def _snapshot_without_counters(inspector: DatabaseInspector, base: str) -> Snapshot:
    snapshot = await take_snapshot(inspector, base)
    return {part: rows for part, rows in snapshot.items() if part != "site"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("phase", list(Phase), ids=lambda phase: phase.name)
async def test_a_job_is_cancelled_in_any_phase_and_writes_nothing_afterwards(
    phase: Phase, url: str, inspector: DatabaseInspector, fleet: Fleet
):
    worker = await fleet.worker(concurrency=1)
    _, address = await fleet.service("--no-scheduler")
    async with staged(url, inspector) as job, httpx.AsyncClient(timeout=30) as client:
        route = f"{address}/api/v3/jobs/{job.id}/cancel"
        async with held(job, phase):
            first = await client.post(route)
        query = "SELECT status IN ('cancelled', 'completed') FROM jobs WHERE id = $1"
        await inspector.wait_for(query, job.id, seconds=fleet.lease + 5)
        status = (await inspector.job(job.id))["status"]
        snapshot = await _snapshot_without_counters(inspector, job.site.base)
        second = await client.post(route)
        await asyncio.sleep(1)
        assert await _snapshot_without_counters(inspector, job.site.base) == snapshot
        await inspector.wait_for(COUNTERS_EQUAL_ROWS, job.site.host_port, seconds=10)
    too_late = {Phase.COMMITTED: 409}
    assert first.status_code == too_late.get(phase, 200)
    assert second.status_code == (200 if status == "cancelled" else 409)
    may_complete = phase in {Phase.PUBLISHING, Phase.ENDING, Phase.COMMITTED}
    assert status == "cancelled" or may_complete
    # What holds a job at its very end holds its heartbeat too, and for longer than the lease.
    assert await violations(inspector, deaths=int(phase is Phase.ENDING)) == []
    assert error_lines(worker.output) == []


async def test_urgent_jobs_are_taken_before_the_others(
    url: str, inspector: DatabaseInspector, fleet: Fleet
):
    async with SmallSite(0.2) as slow, SmallSite() as batch, SmallSite() as urgent:
        ids = [await submit(url, site, start=False) for site in (slow, batch, urgent)]
        await inspector.rows("UPDATE jobs SET run_at = now(), priority = id * -3 + 100")
        await fleet.worker(concurrency=1)
        for job_id in ids:
            await inspector.wait_for_status(job_id, "completed")
    order = await inspector.rows("SELECT id FROM jobs ORDER BY started_at")
    assert [row["id"] for row in order] == ids[::-1]
