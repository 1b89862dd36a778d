"""Measures a service under attack: response times, memory and log."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import httpx

from siteatlas.net.address import parse_site
from siteatlas.queue.fence import Priority
from siteatlas.queue.submission import submit_site
from siteatlas.storage.session import bind_database, create_database, get_background_session
from tests.faults import hostile_sites
from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures, percentile
from tests.faults.fleet import Fleet, FleetProcess
from tests.fixtures.waiting import wait_until

START_SECONDS = 20
PROBE_PAUSE = 0.05
MAX_BATCH = 1000
MIB = 1024 * 1024
FAULTS = ("lease_lost", "QueuePool", "database_unavailable", "job_end_not_recorded", "Traceback")


@dataclass(slots=True)
class Probe:
    """Polls the health of a service, and samples the memory of its process."""

    address: str
    pid: int
    seconds: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    async def run(self) -> None:
        """Poll until cancelled."""
        async with httpx.AsyncClient(timeout=30) as client:
            while True:
                began = time.perf_counter()
                answer = await client.get(f"{self.address}/health")
                self.seconds.append(time.perf_counter() - began)
                self.lags.append(answer.json()["loop_lag_seconds"])
                self.memory.append(resident_mib(self.pid))
                await asyncio.sleep(PROBE_PAUSE)

    @property
    def memory_rise(self) -> float:
        """MiB that the process has grown by since the first sample."""
        return max(self.memory) - self.memory[0]


def resident_mib(pid: int) -> float:
    """The memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / MIB


@dataclass(slots=True)
class Target:
    """A service that reaches all sites through the proxy of the hostile ones."""

    process: FleetProcess
    address: str
    inspector: DatabaseInspector
    client: httpx.AsyncClient

    async def submit_batch(self, sites: Sequence[str]) -> None:
        """Submit sites through the API, as few batches as it takes."""
        for first in range(0, len(sites), MAX_BATCH):
            body = {"domains": sites[first : first + MAX_BATCH]}
            route = f"{self.address}/api/v3/sitemap/batch/create"
            (await self.client.post(route, json=body)).raise_for_status()

    async def submit(self, site: str) -> str:
        """Submit one site through the API; returns the id of its job."""
        route = f"{self.address}/api/v3/sitemap/scan"
        answer = await self.client.post(route, json={"base_url": site})
        return str(answer.raise_for_status().json()["job_id"])

    async def seconds_to(self, job: str, column: str, *, max_seconds: float) -> float:
        """The seconds between the submission of a job and a later moment of it."""
        found = f"SELECT {column} IS NOT NULL FROM jobs WHERE job_id = $1"
        await self.inspector.wait_for(found, UUID(job), seconds=max_seconds)
        taken = f"SELECT extract(epoch FROM {column} - created_at) FROM jobs WHERE job_id = $1"
        return float(await self.inspector.value(taken, UUID(job)))

    async def held(self) -> int:
        """How many jobs are held by workers."""
        query = "SELECT count(*) FROM jobs WHERE status = 'processing'"
        return int(await self.inspector.value(query))

    def faults(self) -> list[str]:
        """Lines of its log about lost leases or missing connections."""
        return [line for line in self.process.output.splitlines() if any(f in line for f in FAULTS)]

    @asynccontextmanager
    async def probed(self) -> AsyncIterator[Probe]:
        """Probe it during the block."""
        probe = Probe(self.address, self.process.pid)
        running = asyncio.create_task(probe.run())
        try:
            yield probe
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def attacked(fleet: Fleet, **settings: object) -> AsyncIterator[Target]:
    """A running service and, in another process, the sites that it scans."""
    sites = fleet.launch(sys.executable, hostile_sites.__file__)
    await wait_until(lambda: "http://" in sites.output, seconds=START_SECONDS)
    chosen = {"proxy": sites.output.strip(), "lease_seconds": 60, **settings}
    process, address = await fleet.service(**chosen)
    # Submissions are about as far apart as the service keeps idle connections open.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        yield Target(process, address, fleet.inspector, client)


async def submit_as(url: str, user: UUID, site: str, priority: Priority) -> str:
    """Submit a site for another user: the API of the local mode knows only one."""
    database = create_database(url)
    bind_database(database)
    try:
        async with get_background_session() as session, session.begin():
            job = await submit_site(session, parse_site(site), created_by=user, priority=priority)
        return str(job.job_id)
    finally:
        bind_database(None)
        await database.close()


def note(figures: Figures, name: str, probe: Probe) -> None:
    """Add the samples of a probe to the table."""
    for seconds in probe.seconds:
        figures.sample(f"{name}: /health, s", seconds)
    figures.sample(f"{name}: loop lag, s", max(probe.lags))
    figures.sample(f"{name}: memory rise, MiB", probe.memory_rise)


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return percentile(values, 0.99)
