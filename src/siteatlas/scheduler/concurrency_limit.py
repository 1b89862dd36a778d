"""How many jobs a process dares to hold: fewer after it lost some, slowly more as jobs end well.

A machine that is too slow for its leases would otherwise claim, lose and claim the same jobs
without an end.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class ConcurrencyLimit:
    """Halved by a loss, at most once per lease; one more for each job that ends."""

    def __init__(
        self, size: int, lease_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._size = size
        self._lease = lease_seconds
        self._clock = clock
        self._halved_at = -lease_seconds
        self.most = size

    def record_loss(self, running: int) -> None:
        """A lease ran out though this process lives, with so many jobs in its slots."""
        now = self._clock()
        if now - self._halved_at >= self._lease:
            self._halved_at = now
            self.most = max(1, min(self.most, max(running, 1)) // 2)

    def ended(self) -> None:
        """A job was brought to an end."""
        self.most = min(self._size, self.most + 1)
