"""Whether the loops of this process (heartbeat and polling) are still running.

A database outage does not make the process unhealthy, because restarting it would not help.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from siteatlas.errors import SchedulerEnded
from siteatlas.meters import Meters

# Longer than one iteration may take while the database is unavailable, until its timeouts.
SLACK_SECONDS = 90.0
# A poll is several statements, and the whole of it is repeated when the database is busy.
POLL_SLACK_SECONDS = 300.0


class Liveness:
    """The ages of the last heartbeat and the last poll, and their limits.

    Before the first of each, the start of the process counts.
    """

    def __init__(self, lease_seconds: float, meters: Meters) -> None:
        self.limit_seconds = lease_seconds + SLACK_SECONDS
        self.poll_limit_seconds = lease_seconds + POLL_SLACK_SECONDS
        self._meters = meters
        self._started = time.monotonic()

    @property
    def heartbeat_age_seconds(self) -> float:
        """Seconds since the last iteration of the heartbeat loop, or since the start."""
        return time.monotonic() - (self._meters.heartbeat_at or self._started)

    @property
    def poll_age_seconds(self) -> float:
        """Seconds since the last iteration of the poll loop, or since the start."""
        return time.monotonic() - (self._meters.polled_at or self._started)

    @property
    def is_alive(self) -> bool:
        """Whether both loops have completed an iteration recently."""
        return (
            self.heartbeat_age_seconds <= self.limit_seconds
            and self.poll_age_seconds <= self.poll_limit_seconds
        )


async def run_until(stop: asyncio.Event, loops: Collection[asyncio.Task[None]]) -> None:
    """Wait until `stop` is set; SchedulerEnded when one of the loops ends before."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *loops], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if not stop.is_set():
        raise SchedulerEnded
