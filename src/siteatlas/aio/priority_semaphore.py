"""A semaphore with priorities: interactive jobs are admitted first.

`fairness` uses it for the event loop, `storage.session` for the connections of jobs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# After this many interactive jobs in a row, one of the others is admitted, so that none starves.
MAX_IN_A_ROW = 4

_is_interactive: ContextVar[bool] = ContextVar("is_interactive", default=False)


@contextmanager
def interactive_job(is_interactive: bool) -> Iterator[None]:
    """Mark the work inside, including tasks started there, as interactive or not."""
    token = _is_interactive.set(is_interactive)
    try:
        yield
    finally:
        _is_interactive.reset(token)


class PrioritySemaphore:
    """A semaphore with two queues of waiting tasks; acquire it with `async with`."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._interactive: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()
        self._in_a_row = 0

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._interactive if _is_interactive.get() else self._others).append(ready)
        try:
            await ready
        except asyncio.CancelledError:
            if not ready.cancelled():
                self._pass_on()
            raise

    async def __aexit__(self, *_error: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass the permit to the next waiter, skipping cancelled ones."""
        while waiting := self._next_waiters():
            ready = waiting.popleft()
            if not ready.done():
                self._in_a_row = self._in_a_row + 1 if waiting is self._interactive else 0
                ready.set_result(None)
                return
        self._free += 1

    def _next_waiters(self) -> deque[asyncio.Future[None]]:
        """The queue from which the semaphore admits the next waiting task; empty if none waits."""
        if self._others and self._in_a_row >= MAX_IN_A_ROW:
            return self._others
        return self._interactive or self._others
