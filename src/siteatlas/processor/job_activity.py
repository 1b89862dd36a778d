"""The last activity of a running job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class JobActivity:
    """Updated by the processor at every event; read by the heartbeat of the worker.

    `ending` is set before the transaction that ends the job: from then on only the fence tells
    whether the job is still ours, for the heartbeat may see it ended before we do.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.ending = False

    @contextmanager
    def mark_ending(self) -> Iterator[None]:
        """Whatever comes after this block, however it is left, belongs to the end of the job."""
        try:
            yield
        finally:
            self.ending = True

    def record_event(self) -> None:
        """The job did something."""
        self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """How long the job has done nothing."""
        return time.monotonic() - self._last
