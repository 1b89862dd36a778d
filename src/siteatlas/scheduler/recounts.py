"""Counting sites anew in the background, apart from the jobs whose end made it necessary."""

from __future__ import annotations

import asyncio

from siteatlas.processor.recount import recount_site

SECONDS_AT_SHUTDOWN = 2.0


class Recounts:
    """One per process. Holds the tasks, which nobody else waits for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, *job_ids: int) -> None:
        """Count the sites that these jobs scanned; they have ended without publishing."""
        for job_id in job_ids:
            task = asyncio.create_task(recount_site(job_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float | None = None) -> None:
        """Wait for what is being counted, at most so long; the rest is left to the next scan."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
