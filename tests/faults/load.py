"""A steady load through the API during faults: submits jobs and counts the responses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from tests.faults.staged_site import SmallSite

PAUSE = 0.05
REQUEST_SECONDS = 30


class Load:
    """Submits its sites in turn for as long as it runs. `accepted` are the jobs that got a 202."""

    def __init__(self, address: str, sites: list[SmallSite]) -> None:
        self._sites = sites
        self._client = httpx.AsyncClient(base_url=address, timeout=REQUEST_SECONDS)
        self._task: asyncio.Task[None] | None = None
        self.accepted: set[str] = set()
        self.answers: Counter[int] = Counter()

    def start(self) -> None:
        """Begin to submit."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Submit nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            for site in self._sites:
                await self.submit(site)
                await asyncio.sleep(PAUSE)

    async def submit(self, site: SmallSite) -> None:
        """Submit one site and note the answer."""
        body = {"base_url": site.base}
        response = await self._client.post("/api/v3/sitemap/scan", json=body)
        self.answers[response.status_code] += 1
        if response.status_code == httpx.codes.ACCEPTED:
            self.accepted.add(response.json()["job_id"])

    async def close(self) -> None:
        """Close the connections to the API."""
        await self._client.aclose()


@asynccontextmanager
async def running_load(address: str, sites: int = 8) -> AsyncIterator[Load]:
    """A load that runs until it is stopped; its sites are there during the whole block."""
    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(SmallSite(0.05)) for _ in range(sites)]
        load = Load(address, served)
        stack.push_async_callback(load.close)
        load.start()
        try:
            yield load
        finally:
            await load.stop()
