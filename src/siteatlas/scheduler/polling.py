"""When a worker asks the queue for jobs: after a submission, for free slots, or at intervals."""

from __future__ import annotations

import asyncio
from contextlib import suppress

MIN_POLL_SECONDS = 1.0
MAX_POLL_SECONDS = 5.0
MIN_POLL_GAP_SECONDS = 0.05
SHARED_POLL_SECONDS = 0.1


class Polling:
    """The time of the next poll of a worker.

    Without a reason to poll earlier, the interval grows while polls find nothing.
    """

    def __init__(self) -> None:
        self._due = asyncio.Event()
        self._shared: asyncio.TimerHandle | None = None
        self._pause = MIN_POLL_SECONDS
        self._jobs_expected = False

    def expect_jobs(self) -> None:
        """Note that jobs will soon be due: the interval does not grow before the next poll."""
        self._jobs_expected = True

    def poll_now(self) -> None:
        """Poll as soon as possible."""
        self._due.set()

    def poll_for_free_slots(self, *, few: bool) -> None:
        """Poll because slots are free; if they are few, after waiting a moment for more.

        A claim costs as much as a third of a small job, however few jobs it takes.
        """
        if not few:
            self.poll_now()
        elif self._shared is None:
            loop = asyncio.get_running_loop()
            self._shared = loop.call_later(SHARED_POLL_SECONDS, self._end_sharing)

    def begin_poll(self) -> None:
        """Note that a poll begins: it serves all earlier reasons to poll."""
        self._due.clear()
        self._jobs_expected = False
        if self._shared is not None:
            self._shared.cancel()
            self._shared = None

    async def wait(self, *, found_jobs: bool) -> None:
        """Wait for the next poll; `found_jobs` tells whether the last one claimed any."""
        longer = min(self._pause * 1.5, MAX_POLL_SECONDS)
        self._pause = MIN_POLL_SECONDS if found_jobs or self._jobs_expected else longer
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._due.wait()
                self._pause = MIN_POLL_SECONDS
        await asyncio.sleep(MIN_POLL_GAP_SECONDS)

    def _end_sharing(self) -> None:
        """Poll for the slots that have become free meanwhile."""
        self._shared = None
        self.poll_now()
