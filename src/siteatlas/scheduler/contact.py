"""Whether this process has had its database all along, or must blame the database for silence."""

from __future__ import annotations

import time


class DatabaseUptime:
    """Remembers when the database answered, on the monotonic clock.

    A gap of more than half a lease is an outage: the leases that end in it, or within a lease
    after it, say nothing about the jobs that they belong to.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease = lease_seconds
        self._last: float | None = None
        self._since = float("-inf")

    @property
    def covers_lease(self) -> bool:
        """Whether workers could have renewed their leases during the whole of the last one."""
        now = time.monotonic()
        return not self._is_gap(now) and now - self._since >= self._lease

    def record_answer(self) -> None:
        """The database answered."""
        now = time.monotonic()
        if self._is_gap(now):
            self._since = now
        self._last = now

    def _is_gap(self, now: float) -> bool:
        return self._last is not None and now - self._last > self._lease / 2
