"""The sign of life of a running job."""

from __future__ import annotations

import time


class Pulse:
    """Beaten by the processor at every event; read by the heartbeat of the worker.

    `may_write` is taken away when the job is stopped because it belongs to somebody else.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.may_write = True

    def beat(self) -> None:
        """The job did something."""
        self._last = time.monotonic()

    def silent_seconds(self) -> float:
        """How long the job has done nothing."""
        return time.monotonic() - self._last
