"""The phases of a job, and how a test brings a worker into each of them and holds it there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from sqlalchemy import func, update

from siteatlas.net.address import parse_site
from siteatlas.queue.submission import submit_site
from siteatlas.storage.models import LOCAL_USER_ID, Job
from siteatlas.storage.session import create_database
from tests.faults.database_inspector import DatabaseInspector
from tests.faults.staged_site import DOCUMENTS, StagedSite
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

REACH_SECONDS = 60
LIMITS = {"lock_timeout": "10s"}
BLOCKED_BY = """
    SELECT count(*) > 0 FROM pg_stat_activity
    WHERE datname = current_database() AND $1 = ANY (pg_blocking_pids(pid))
"""
STORED = """
    SELECT count(*) > $2 FROM sitemap_urls u JOIN sitemaps s ON s.id = u.sitemap_id WHERE s.url = $1
"""
COMPLETE = """
    SELECT count(*) FROM sitemap_scans d JOIN scans s ON s.id = d.scan_id
    WHERE s.job_id = $1 AND d.state = 'complete'
"""
COPY_WAITS = """
    SELECT count(*) > 0 FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'COPY%' AND wait_event_type = 'Lock'
"""


class Phase(StrEnum):
    """How far a worker has got with its job."""

    CLAIMED = "claimed, nothing else"
    ROBOTS = "robots.txt requested"
    BODY = "inside a document"
    BATCH = "batches of a document committed"
    COPYING = "inside a COPY of URLs"
    BETWEEN = "all documents but one committed"
    PUBLISHING = "inside the last transaction"
    ENDING = "final status written, not committed"
    COMMITTED = "last transaction committed"


def phases_but(*left_out: Phase) -> list[Any]:
    """The phases as parameters of a test; the short selection runs it in one of them."""
    return [
        pytest.param(
            phase,
            id=phase.name,
            marks=[pytest.mark.faults_short] if phase is Phase.BATCH else [],
        )
        for phase in Phase
        if phase not in left_out
    ]


@dataclass(frozen=True, slots=True)
class StagedJob:
    """A queued job that no worker can claim before `make_due`."""

    id: int
    site: StagedSite
    inspector: DatabaseInspector

    async def make_due(self) -> None:
        """Let workers claim it from now on."""
        await self.inspector.rows("UPDATE jobs SET run_at = now() WHERE id = $1", self.id)


async def submit(url: str, site: SiteServer, *, start: bool = True) -> int:
    """Queue a scan as the API does; with `start=False` it is due in an hour."""
    database = create_database(url)
    try:
        async with database.session(LIMITS) as session, session.begin():
            submitted = await submit_site(session, parse_site(site.base), created_by=LOCAL_USER_ID)
            if not start:
                later = func.now() + timedelta(hours=1)
                await session.execute(
                    update(Job).where(Job.id == submitted.id).values(run_at=later)
                )
    finally:
        await database.close()
    return submitted.id


@asynccontextmanager
async def staged(url: str, inspector: DatabaseInspector) -> AsyncIterator[StagedJob]:
    """A site with a queued job that is not due yet."""
    async with StagedSite() as site:
        job = StagedJob(await submit(url, site, start=False), site, inspector)
        try:
            yield job
        finally:
            site.open_all()


def held(job: StagedJob, phase: Phase) -> AbstractAsyncContextManager[None]:
    """Let the job start and hold its worker in a phase; at the end of the block it may go on."""
    return HOLDS[phase](job)


@asynccontextmanager
async def _claimed(job: StagedJob) -> AsyncIterator[None]:
    lock = "SELECT FROM domains WHERE domain = $1 FOR UPDATE"
    async with job.inspector.holding(lock, job.site.host_port) as holder:
        await job.make_due()
        await _until_blocked(job, holder.get_server_pid())
        yield


@asynccontextmanager
async def _robots(job: StagedJob) -> AsyncIterator[None]:
    async with _gate(job, "robots"):
        yield


@asynccontextmanager
async def _body(job: StagedJob) -> AsyncIterator[None]:
    async with _gate(job, "body"):
        yield


@asynccontextmanager
async def _batch(job: StagedJob) -> AsyncIterator[None]:
    async with _gate(job, "batch"):
        big = f"{job.site.base}/big.xml"
        await job.inspector.wait_for(STORED, big, 8_000, seconds=REACH_SECONDS)
        yield


@asynccontextmanager
async def _copying(job: StagedJob) -> AsyncIterator[None]:
    """A lock stops a COPY at its start, in a document of which rows are committed already.

    What the worker has sent until then is less than all of it.
    """
    lock = "LOCK TABLE sitemap_urls IN SHARE MODE"
    async with _gate(job, "last"):
        last = f"{job.site.base}/last.xml"
        await job.inspector.wait_for(STORED, last, 3_000, seconds=REACH_SECONDS)
        async with job.inspector.holding(lock):
            await job.inspector.wait_for(COPY_WAITS, seconds=REACH_SECONDS)
            yield


@asynccontextmanager
async def _between(job: StagedJob) -> AsyncIterator[None]:
    async with _gate(job, "last"):
        others = len(DOCUMENTS) - 1
        await job.inspector.wait_for(COMPLETE, job.id, expected=others, seconds=REACH_SECONDS)
        yield


@asynccontextmanager
async def _publishing(job: StagedJob) -> AsyncIterator[None]:
    lock = "SELECT FROM scans WHERE job_id = $1 FOR NO KEY UPDATE"
    async with _gate(job, "robots"), job.inspector.holding(lock, job.id) as holder:
        job.site.open_all()
        await _until_blocked(job, holder.get_server_pid())
        yield


@asynccontextmanager
async def _ending(job: StagedJob) -> AsyncIterator[None]:
    """The record of the attempt is the last row; ours, not committed, is in its way."""
    async with _gate(job, "robots"):
        fence = (await job.inspector.job(job.id))["fence"]
        row = "INSERT INTO job_attempts (job_id, fence, attempt, outcome) VALUES ($1, $2, 0, '')"
        async with job.inspector.holding(row, job.id, fence) as holder:
            job.site.open_all()
            await _until_blocked(job, holder.get_server_pid())
            yield


@asynccontextmanager
async def _committed(job: StagedJob) -> AsyncIterator[None]:
    await job.make_due()
    await job.inspector.wait_for_status(job.id, "completed", seconds=REACH_SECONDS)
    yield


@asynccontextmanager
async def _gate(job: StagedJob, name: str) -> AsyncIterator[None]:
    gate = job.site.gates[name]
    gate.close()
    await job.make_due()
    await wait_until(gate.reached.is_set, seconds=REACH_SECONDS)
    try:
        yield
    finally:
        gate.open()


async def _until_blocked(job: StagedJob, holder_pid: int) -> None:
    await job.inspector.wait_for(BLOCKED_BY, holder_pid, seconds=REACH_SECONDS)


HOLDS: dict[Phase, Callable[[StagedJob], AbstractAsyncContextManager[None]]] = {
    Phase.CLAIMED: _claimed,
    Phase.ROBOTS: _robots,
    Phase.BODY: _body,
    Phase.BATCH: _batch,
    Phase.COPYING: _copying,
    Phase.BETWEEN: _between,
    Phase.PUBLISHING: _publishing,
    Phase.ENDING: _ending,
    Phase.COMMITTED: _committed,
}
