"""The two clocks of a scheduler: the times of its ticks, and the due clock of watched sites.

The due clock sleeps until the next watched site is due, then has the due sites queued. The earliest
time is read from the database, repeatedly, because other processes change it too.
Who queues a site when several clocks go off at once is decided by row locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from siteatlas.insights.queue_load import seconds_until_due
from siteatlas.scheduler.outages import ResilientLoop
from siteatlas.storage.session import get_background_session

TICK = "process_pending_sitemaps"
MIN_SLEEP_SECONDS = 1.0
# Less than half of the shortest interval: what others schedule is known before it is due.
MAX_SLEEP_SECONDS = 25.0
# Timers may fire a little early; without a margin the clock would look twice.
MARGIN_SECONDS = 0.02


class TickTimes:
    """When the tick ran last and runs next, as the worker reports it; both None without a clock."""

    def __init__(self, clock: AsyncIOScheduler | None = None) -> None:
        self._clock = clock
        self.last_at: datetime | None = None

    @property
    def next_at(self) -> datetime | None:
        """When the clock ticks next; None while it does not run."""
        if self._clock is None or not self._clock.running:
            return None
        job = self._clock.get_job(TICK)
        return job.next_run_time if job else None


class DueClock:
    """One per process. Looks at most once a second, however often `look` is called."""

    def __init__(self, enqueue_due: Callable[[], Awaitable[None]]) -> None:
        self._enqueue_due = enqueue_due
        self._look_requested = asyncio.Event()

    def look(self) -> None:
        """Read the next due time again: a site's was changed in this process."""
        self._look_requested.set()

    async def run(self) -> None:
        """Have sites queued when they are due, until cancelled."""
        resilient_loop = ResilientLoop("due clock")
        while True:
            sleep = MAX_SLEEP_SECONDS
            self._look_requested.clear()
            async with resilient_loop.iteration():
                sleep = await self._round()
            await asyncio.sleep(MIN_SLEEP_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(sleep - MIN_SLEEP_SECONDS):
                    await self._look_requested.wait()

    async def _round(self) -> float:
        """Have the due sites queued; return how many seconds to sleep."""
        remaining = await _read_seconds_until_due()
        if remaining is not None and remaining <= 0:
            await self._enqueue_due()
            remaining = await _read_seconds_until_due()
        if remaining is None:
            return MAX_SLEEP_SECONDS
        return min(max(remaining + MARGIN_SECONDS, MIN_SLEEP_SECONDS), MAX_SLEEP_SECONDS)


async def _read_seconds_until_due() -> float | None:
    """Read, for the due clock, how soon the next watched site is due; None if there is none."""
    async with get_background_session() as session, session.begin():
        return await seconds_until_due(session)
