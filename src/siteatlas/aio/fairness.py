"""Fairness on the event loop: CPU-bound work runs in small chunks, and requests go first.

A database write or a response to a request needs about a dozen iterations of the event loop. If
each iteration contains no more than a few milliseconds of CPU-bound work, both stay fast, however
many scans run in this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from siteatlas.aio.loop_local import LoopLocal
from siteatlas.aio.priority_semaphore import PrioritySemaphore

ROUND_SECONDS = 0.001
MAX_YIELD_SECONDS = 0.05
BACKGROUND_SHARE_SECONDS = 0.01
INTERACTIVE_SECONDS = 0.25

ItemT = TypeVar("ItemT")


class FairLoop:
    """Who may use the event loop next. One for each loop: `fair_loop()`."""

    def __init__(self) -> None:
        self._turn = PrioritySemaphore(1)
        self._no_interactive = asyncio.Event()
        self._no_interactive.set()
        self._interactive_count = 0
        self._worked = 0.0
        self._background_until = 0.0

    @asynccontextmanager
    async def time_slice(self) -> AsyncIterator[None]:
        """Wait for the turn to do a step of heavy work; yield to the loop after enough of it."""
        async with self._turn:
            await self.yield_to_interactive()
            started = time.perf_counter()
            yield
            self._worked += time.perf_counter() - started
            if self._worked >= ROUND_SECONDS:
                self._worked = 0.0
                await asyncio.sleep(0)

    async def time_slices(self, work: Iterable[ItemT]) -> AsyncIterator[ItemT]:
        """The items of an iterable, each produced in a separate time slice."""
        making = iter(work)
        while True:
            async with self.time_slice():
                made = next(making, None)
            if made is None:
                return
            yield made

    async def yield_to_interactive(self) -> None:
        """Let requests go first; under constant load, other work still gets its share of time."""
        if not self._interactive_count or time.perf_counter() < self._background_until:
            return
        try:
            async with asyncio.timeout(MAX_YIELD_SECONDS):
                await self._no_interactive.wait()
        except TimeoutError:
            self._background_until = time.perf_counter() + BACKGROUND_SHARE_SECONDS

    @contextmanager
    def interactive(self) -> Iterator[None]:
        """Interactive work inside the block goes first, unless it takes long."""
        self._interactive_count += 1
        self._no_interactive.clear()
        leave = call_once(self._leave_interactive)
        late = asyncio.get_running_loop().call_later(INTERACTIVE_SECONDS, leave)
        try:
            yield
        finally:
            late.cancel()
            leave()

    def _leave_interactive(self) -> None:
        """Count down interactive work; after the last, other work may use the event loop again."""
        self._interactive_count -= 1
        if not self._interactive_count:
            self._no_interactive.set()


def call_once(callback: Callable[[], None]) -> Callable[[], None]:
    """Wrap a callback of the event loop so that only the first call runs it."""
    pending = [callback]

    def call() -> None:
        """Run the callback if it has not run yet."""
        if pending:
            pending.pop()()

    return call


_fair_loops = LoopLocal(FairLoop)


def fair_loop() -> FairLoop:
    """The `FairLoop` of the running event loop."""
    return _fair_loops.get()
