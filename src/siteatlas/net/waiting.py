"""Reports how long the requests of a job wait before they are sent.

`politeness.py` and `client.py` report each wait here. The observer decides what a waiting job
releases and when it may resume.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OnIdle = Callable[[float], None]
Resume = Callable[[], Awaitable[None]]

UNKNOWN = math.inf


async def _resume_at_once() -> None:
    """Without an observer, the next HTTP request is sent without a further wait."""


class Waits:
    """The requests of one job, and which of them wait.

    `on_idle` is called when every open request waits, with the seconds until the first of them
    can be sent (infinite when that depends on other requests). It is called again when one more
    request waits. `resume` is awaited before the job sends anything after that, so it may block
    until the job has its slot back.
    """

    def __init__(self, on_idle: OnIdle = lambda _: None, resume: Resume = _resume_at_once) -> None:
        self._on_idle = on_idle
        self._resume = resume
        self._resuming = asyncio.Lock()
        self._requests = 0
        self._ends: dict[object, float] = {}
        self._is_idle = False

    @property
    def is_idle(self) -> bool:
        """Whether all open HTTP requests of the job wait for their turn, and it has not resumed."""
        return self._is_idle

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count one request, from its first wait until its response has been read."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            self._report_idle()

    @contextmanager
    def wait(self, seconds: float = UNKNOWN) -> Iterator[None]:
        """Report that one of the requests waits."""
        key = object()
        self._ends[key] = time.monotonic() + seconds
        self._report_idle()
        try:
            yield
        finally:
            del self._ends[key]

    async def resume_requests(self) -> None:
        """Before an HTTP request is sent: wait until a job that was reported as idle may resume."""
        async with self._resuming:
            if self._is_idle:
                await self._resume()
                self._is_idle = False

    def _report_idle(self) -> None:
        """Call the observer if all open HTTP requests of the job wait."""
        if self._ends and len(self._ends) >= self._requests:
            self._is_idle = True
            self._on_idle(max(min(self._ends.values()) - time.monotonic(), 0.0))


_waits: ContextVar[Waits | None] = ContextVar("waits", default=None)


@contextmanager
def observe_waits(waits: Waits) -> Iterator[None]:
    """Report all waits of requests made inside, also by tasks started inside, to `waits`."""
    token = _waits.set(waits)
    try:
        yield
    finally:
        _waits.reset(token)


def current_waits() -> Waits:
    """The `Waits` to which requests of the running task report; unobserved by default."""
    return _waits.get() or Waits()
