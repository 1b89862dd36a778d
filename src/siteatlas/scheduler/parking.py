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
        self.waits = Waits(self._park_for_wait, self._resume)

    def stop(self) -> None:
        """Stop parking the job, which has ended."""
        self._cancel_parking_timer()

    def _park_for_wait(self, seconds: float) -> None:
        """Free the slot of a job that waits for its site for a second or more."""
        self._cancel_parking_timer()
        if math.isinf(seconds):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MIN_WAIT_SECONDS, self._park_if_idle)
        elif seconds >= MIN_WAIT_SECONDS:
            self._slots.park(self._job)

    def _park_if_idle(self) -> None:
        """Free the slot of a job whose wait has no known end, if it still waits."""
        if self.waits.is_idle:
            self._slots.park(self._job)

    async def _resume(self) -> None:
        """Return the job to a slot after its wait."""
        self._cancel_parking_timer()
        await self._slots.resume(self._job)
        self._job.activity.record_event()

    def _cancel_parking_timer(self) -> None:
        """Cancel the timer that would park the job."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
