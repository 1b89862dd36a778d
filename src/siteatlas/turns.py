"""Turns on the event loop: heavy work in small pieces, little per round, and people go first.

A database write and an answer to a request need a dozen rounds each. A round that holds no more
than a few milliseconds of heavy work keeps both quick, however many scans run in this process.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

COLLECT_AFTER = (2_000, 10, 100)
ROUND_SECONDS = 0.001
MOST_PATIENCE_SECONDS = 0.05
OWN_SECONDS = 0.01
PERSON_SECONDS = 0.25


class Turns:
    """Who may use the event loop next. One for each loop: `turns()`."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._nobody_waits = asyncio.Event()
        self._nobody_waits.set()
        self._people = 0
        self._worked = 0.0
        self._impatient_until = 0.0

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Wait for the turn to do a piece of heavy work. Enough of it, and the loop goes round."""
        async with self._lock:
            await self._give_way()
            started = time.perf_counter()
            yield
            self._worked += time.perf_counter() - started
            if self._worked >= ROUND_SECONDS:
                self._worked = 0.0
                await asyncio.sleep(0)

    async def _give_way(self) -> None:
        """Let people go first; when there is no end of them, work still gets its share of time."""
        if not self._people or time.perf_counter() < self._impatient_until:
            return
        try:
            async with asyncio.timeout(MOST_PATIENCE_SECONDS):
                await self._nobody_waits.wait()
        except TimeoutError:
            self._impatient_until = time.perf_counter() + OWN_SECONDS

    @contextmanager
    def person(self) -> Iterator[None]:
        """Somebody waits for what happens inside; whoever takes long no longer goes first."""
        self._people += 1
        self._nobody_waits.clear()
        leave = once(self._one_left)
        late = asyncio.get_running_loop().call_later(PERSON_SECONDS, leave)
        try:
            yield
        finally:
            late.cancel()
            leave()

    def _one_left(self) -> None:
        self._people -= 1
        if not self._people:
            self._nobody_waits.set()


def once(action: Callable[[], None]) -> Callable[[], None]:
    """The action, which only the first call does."""
    pending = [action]

    def call() -> None:
        if pending:
            pending.pop()()

    return call


class _OfThread(threading.local):
    """The turns of the event loop that runs in a thread; those of an ended one are let go."""

    loop: asyncio.AbstractEventLoop | None = None
    turns: Turns | None = None


_here = _OfThread()


def turns() -> Turns:
    """The turns of the running event loop."""
    loop = asyncio.get_running_loop()
    if _here.turns is None or _here.loop is not loop:
        _here.loop, _here.turns = loop, Turns()
    return _here.turns


def spare_what_stays() -> None:
    """Take all objects of the start out of the collector's rounds, which stop everything.

    They live as long as the process, and looking at them took a tenth of a second each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
