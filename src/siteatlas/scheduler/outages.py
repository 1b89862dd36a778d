"""Database outages: how a loop survives one, and whether one explains a silent worker.

`ResilientLoop` backs off and logs the outage occasionally. If a loop died, the process would look
alive and do nothing. So no error escapes an iteration: an outage is waited for, anything else is
logged with its traceback. Only the cancellation of the task ends the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from siteatlas.errors import DatabaseError, SchedulerEnded
from siteatlas.logs import get_logger
from siteatlas.meters import Meters
from siteatlas.queue.views import seconds_until_due
from siteatlas.storage.session import get_background_session

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
        return round(self._clock() - (self._failing_since or 0.0), 1)

    async def _back_off(self) -> None:
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


class Liveness:
    """The ages of the last heartbeat and the last poll, and their limits.

    Before the first of each, the start of the process counts.
    """

    def __init__(self, lease_seconds: float, meters: Meters) -> None:
        # Longer than one iteration may take while the database is unavailable, until its timeouts.
        self.limit_seconds = lease_seconds + 90.0
        # A poll is several statements, and the whole of it is repeated when the database is busy.
        self.poll_limit_seconds = lease_seconds + 300.0
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


TICK = "process_pending_sitemaps"
MIN_SLEEP_SECONDS = 1.0
# Less than half of the shortest interval: what others schedule is known before it is due.
MAX_SLEEP_SECONDS = 25.0


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
        remaining = await _read_seconds_until_due()
        if remaining is not None and remaining <= 0:
            await self._enqueue_due()
            remaining = await _read_seconds_until_due()
        if remaining is None:
            return MAX_SLEEP_SECONDS
        # Timers may fire a little early; without a margin the clock would look twice.
        return min(max(remaining + 0.02, MIN_SLEEP_SECONDS), MAX_SLEEP_SECONDS)


async def _read_seconds_until_due() -> float | None:
    async with get_background_session() as session, session.begin():
        return await seconds_until_due(session)
