"""A running service as its users see it: jobs, results, response times and memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

JOB_SECONDS = 60
PROBE_SECONDS = 0.025
ENDED = {"completed", "failed", "cancelled"}


class ObservedService:
    """The API at an address, and the process behind it."""

    def __init__(self, client: httpx.AsyncClient, pid: int) -> None:
        self._client = client
        self._pid = pid
        self.health_seconds: list[float] = []
        self.resident_kib: list[int] = []

    async def submit(self, base_url: str) -> str:
        """Queue a scan; gives the address of its status."""
        answer = await self._client.post("/api/v3/sitemap/scan", json={"base_url": base_url})
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        return str(answer.json()["status_url"])

    async def status(self, status_url: str) -> dict[str, Any]:
        """A job as it is now."""
        found: dict[str, Any] = (await self._client.get(status_url)).json()
        return found

    async def ended(self, status_url: str) -> dict[str, Any]:
        """A job once it has ended."""

        async def has_ended() -> bool:
            return (await self.status(status_url))["status"] in ENDED

        await wait_until(has_ended, seconds=JOB_SECONDS)
        return await self.status(status_url)

    async def scan(self, site: SiteServer) -> dict[str, Any]:
        """Scan a site; gives its job."""
        return await self.ended(await self.submit(site.base))

    async def listed(self, site: SiteServer) -> list[tuple[str, str]]:
        """Every stored URL of a site with its extras, without the address of the site."""
        rows: list[tuple[str, str]] = []
        cursor = None
        while True:
            query = {"limit": 1000, **({"cursor": cursor} if cursor else {})}
            path = f"/api/v3/domains/{site.host_port}/urls"
            page = (await self._client.get(path, params=query)).json()
            rows += [(row["url"], repr(row["extras"])) for row in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return sorted((u.replace(site.base, ""), e.replace(site.base, "")) for u, e in rows)

    @asynccontextmanager
    async def probed(self) -> AsyncIterator[None]:
        """Ask for /health and look at the memory all the time."""
        task = asyncio.create_task(self._probe())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _probe(self) -> None:
        while True:
            began = time.perf_counter()
            assert (await self._client.get("/health")).status_code == httpx.codes.OK
            self.health_seconds.append(time.perf_counter() - began)
            self.resident_kib.append(self.resident())
            await asyncio.sleep(PROBE_SECONDS)

    def resident(self) -> int:
        """The memory of the process in KiB."""
        status = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1])


@asynccontextmanager
async def observed(address: str, pid: int) -> AsyncIterator[ObservedService]:
    """Open the API of a service."""
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        yield ObservedService(client, pid)
