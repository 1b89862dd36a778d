"""What this process has done since it started, as plain numbers that the rooms count up.

One event loop writes them, so nothing is locked. How they are shown is the business of
`insights.metrics`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LAG_CHECK_SECONDS = 0.5


@dataclass(slots=True)
class Meters:
    """Counts and seconds. `documents` is by outcome, `jobs_ended` by the status they ended in."""

    claims: int = 0
    rescues: int = 0
    lease_losses: int = 0
    jobs_ended: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    urls: int = 0
    fetched_bytes: int = 0
    fetch_seconds: float = 0.0
    writes: int = 0
    write_seconds: float = 0.0
    loop_lag_seconds: float = 0.0
    longest_loop_lag_seconds: float = 0.0
    heartbeat_at: float | None = None
    polled_at: float | None = None

    def note_heartbeat(self) -> None:
        """The heartbeat loop went round, whether the database answered or not."""
        self.heartbeat_at = time.monotonic()

    def note_poll(self) -> None:
        """The poll loop went round, whether the database answered or not."""
        self.polled_at = time.monotonic()

    def heartbeat_timestamp(self) -> float:
        """When it last did, in Unix time; 0 in a process that does not work on the queue."""
        if self.heartbeat_at is None:
            return 0.0
        return time.time() - (time.monotonic() - self.heartbeat_at)

    @contextmanager
    def timed_write(self) -> Iterator[None]:
        """Measure one transaction that writes rows of a scan, whether it succeeds or not."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.writes += 1
            self.write_seconds += time.perf_counter() - started


meters = Meters()


async def watch_loop_lag() -> None:
    """Measure for ever how late the event loop wakes us up."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_CHECK_SECONDS
        await asyncio.sleep(LAG_CHECK_SECONDS)
        lag = max(0.0, loop.time() - due)
        meters.loop_lag_seconds = lag
        meters.longest_loop_lag_seconds = max(meters.longest_loop_lag_seconds, lag)
