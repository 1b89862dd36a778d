"""The jobs that a process is working on, and why one of them is told to stop."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from enum import Enum, auto

from siteatlas.processor.pulse import Pulse
from siteatlas.queue.claims import Claim


class StopReason(Enum):
    """Why a running job is stopped from outside."""

    SHUTDOWN = auto()
    CANCELLED = auto()
    LEASE_LOST = auto()


@dataclass(slots=True, eq=False)
class RunningJob:
    """A claimed job with its task; `renewed_at` is on the monotonic clock of this process."""

    claim: Claim
    pulse: Pulse = field(default_factory=Pulse)
    renewed_at: float = field(default_factory=time.monotonic)
    task: asyncio.Task[None] | None = None
    stop_reason: StopReason | None = None

    def stop(self, reason: StopReason) -> None:
        """Cancel the task, once; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.pulse.may_write = reason is not StopReason.LEASE_LOST
            if self.task is not None:
                self.task.cancel()


class Slots:
    """A fixed number of places for jobs."""

    def __init__(self, size: int) -> None:
        self.size = size
        # Not by id: a job that was lost may be claimed anew while its old holder still winds down.
        self._jobs: set[RunningJob] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def free(self) -> int:
        """How many more jobs may be claimed."""
        return self.size - len(self._jobs)

    def add(self, job: RunningJob) -> None:
        """Occupy a place."""
        self._jobs.add(job)
        self._idle.clear()

    def remove(self, job: RunningJob) -> None:
        """Free a place."""
        self._jobs.discard(job)
        if not self._jobs:
            self._idle.set()

    def jobs(self) -> list[RunningJob]:
        """The jobs at this moment."""
        return list(self._jobs)

    async def wait_idle(self, seconds: float | None = None) -> bool:
        """Wait until every job has ended; False when the time ran out before."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
