"""Turns on the event loop: heavy work in small pieces, little per round, and people go first.

A database write and an answer to a request need a dozen rounds each. A round that holds no more
than a few milliseconds of heavy work keeps both quick, however many scans run in this process.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakKeyDictionary

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
        person = _Person(self)
        late = asyncio.get_running_loop().call_later(PERSON_SECONDS, person.leave)
        try:
            yield
        finally:
            late.cancel()
            person.leave()

    def come(self) -> None:
        """One more person waits."""
        self._people += 1
        self._nobody_waits.clear()

    def go(self) -> None:
        """One of them has gone."""
        self._people -= 1
        if not self._people:
            self._nobody_waits.set()


class _Person:
    """Counted once on coming and once on leaving, however often it is told to leave."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waits = True
        turns.come()

    def leave(self) -> None:
        if self._waits:
            self._waits = False
            self._turns.go()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns() -> Turns:
    """The turns of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Turns()
    return found


def spare_what_stays() -> None:
    """Take all objects of the start out of the collector's rounds, which stop everything.

    They live as long as the process, and looking at them took a tenth of a second each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
