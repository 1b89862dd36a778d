"""Whether the heartbeat of this process still goes round.

An outage of the database does not count against the process: to restart it would not help.
"""

from __future__ import annotations

import time

from siteatlas.meters import Meters

# More than one round may take while the database is away: it is given up after its own limits.
SLACK_SECONDS = 90.0


class Liveness:
    """The age of the last heartbeat, from the start of the process on, and its limit."""

    def __init__(self, lease_seconds: float, meters: Meters) -> None:
        self.limit_seconds = lease_seconds + SLACK_SECONDS
        self._meters = meters
        self._started = time.monotonic()

    @property
    def heartbeat_age_seconds(self) -> float:
        """How long ago the heartbeat loop last went round, or has been awaited."""
        return time.monotonic() - (self._meters.heartbeat_at or self._started)

    @property
    def is_alive(self) -> bool:
        """Whether it did so recently."""
        return self.heartbeat_age_seconds <= self.limit_seconds
