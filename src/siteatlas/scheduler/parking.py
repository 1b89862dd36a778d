"""Parks a job while it only waits for its site, and returns it to a slot."""

from __future__ import annotations

import asyncio
import math

from siteatlas.net.waiting import Waits
from siteatlas.scheduler.slots import RunningJob, Slots

MIN_WAIT_SECONDS = 1.0


class Parking:
    """Watches the waits of one job; waits of less than a second do not park it."""

    def __init__(self, slots: Slots, job: RunningJob) -> None:
        self._slots = slots
        self._job = job
        self._timer: asyncio.TimerHandle | None = None
        self.waits = Waits(self._on_idle, self._resume)

    def end(self) -> None:
        """Stop watching: the job has ended."""
        self._forget_timer()

    def _on_idle(self, seconds: float) -> None:
        self._forget_timer()
        if math.isinf(seconds):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MIN_WAIT_SECONDS, self._park_if_idle)
        elif seconds >= MIN_WAIT_SECONDS:
            self._slots.park(self._job)

    def _park_if_idle(self) -> None:
        if self.waits.is_idle:
            self._slots.park(self._job)

    async def _resume(self) -> None:
        self._forget_timer()
        await self._slots.resume(self._job)
        self._job.activity.record_event()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
