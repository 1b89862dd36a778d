"""Database outages: how a loop survives one, and whether one explains a silent worker.

`ResilientLoop` backs off and logs the outage occasionally. If a loop died, the process would look
alive and do nothing. So no error escapes an iteration: an outage is waited for, anything else is
logged with its traceback. Only the cancellation of the task ends the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger

log = get_logger("scheduler")

FIRST_PAUSE = 0.2
MAX_PAUSE_SECONDS = 5.0
REPEAT_LOG_SECONDS = 60.0


class ResilientLoop:
    """Wraps the iterations of a loop; remembers since when the database has been unavailable."""

    def __init__(self, loop_name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop_name = loop_name
        self._clock = clock
        self._pause = FIRST_PAUSE
        self._failing_since: float | None = None
        self._logged_at = 0.0

    @asynccontextmanager
    async def iteration(self) -> AsyncIterator[None]:
        """Run one iteration; an outage causes a pause instead of an error."""
        try:
            yield
        except asyncio.CancelledError:
            if _is_loop_cancelled():
                raise
            log.exception("loop_iteration_failed", loop=self._loop_name)
            await self._back_off()
        except DatabaseError as error:
            self._note_outage(error)
            await self._back_off()
        except Exception:
            log.exception("loop_iteration_failed", loop=self._loop_name)
            await self._back_off()
        else:
            if self._failing_since is not None:
                log.info(
                    "database_recovered", loop=self._loop_name, seconds=self._failing_seconds()
                )
            self._failing_since, self._pause = None, FIRST_PAUSE

    def _note_outage(self, error: DatabaseError) -> None:
        """Record that the database is unavailable; log it at once, then once a minute."""
        now = self._clock()
        if self._failing_since is None:
            self._failing_since, self._logged_at = now, now - REPEAT_LOG_SECONDS
        if now - self._logged_at >= REPEAT_LOG_SECONDS:
            self._logged_at = now
            log.warning(
                "database_unavailable",
                loop=self._loop_name,
                reason=error.code,
                seconds=self._failing_seconds(),
            )

    def _failing_seconds(self) -> float:
        """How long the database has been unavailable to this loop, in seconds."""
        return round(self._clock() - (self._failing_since or 0.0), 1)

    async def _back_off(self) -> None:
        """Pause the scheduler's loop after a failed iteration, each time for longer."""
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)


class DatabaseUptime:
    """Remembers when the database responded, on the monotonic clock.

    A gap of more than half a lease is an outage: leases that expire during it, or within one lease
    after it, are not evidence that a worker died.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._last: float | None = None
        self._since = float("-inf")

    @property
    def covers_lease(self) -> bool:
        """Whether workers could have renewed their leases during the whole of the last one."""
        now = time.monotonic()
        return not self._is_gap(now) and now - self._since >= self._lease_seconds

    def record_response(self) -> None:
        """Record a response of the database."""
        now = time.monotonic()
        if self._is_gap(now):
            self._since = now
        self._last = now

    def _is_gap(self, now: float) -> bool:
        """Whether the last response of the database is so old that there was an outage."""
        return self._last is not None and now - self._last > self._lease_seconds / 2


def _is_loop_cancelled() -> bool:
    """Whether the scheduler's loop itself was cancelled, not only something that it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
