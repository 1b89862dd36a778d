"""The last activity of a running job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


class JobActivity:
    """Updated by the processor at every event; read by the heartbeat of the worker.

    `ending` is set before the transaction that ends the job: from then on only the fence tells
    whether the job is still ours, for the heartbeat may see it ended before we do. `lease_lost` is
    set when the fence refused a write, `document_committed` with the first finished document of
    this attempt.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.ending = False
        self.lease_lost = False
        self.document_committed = asyncio.Event()

    @contextmanager
    def mark_ending(self) -> Iterator[None]:
        """Mark the job as ending when this block is left, normally or by an error."""
        try:
            yield
        finally:
            self.ending = True

    def record_event(self) -> None:
        """Record progress of the job."""
        self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """How long the job has done nothing."""
        return time.monotonic() - self._last
