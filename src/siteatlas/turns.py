"""Turns on the event loop: heavy work in small pieces, little per round, and people go first.

A database write and an answer to a request need a dozen rounds each. A round that holds no more
than a few milliseconds of heavy work keeps both quick, however many scans run in this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from weakref import WeakKeyDictionary

ROUND_SECONDS = 0.001
MOST_PATIENCE_SECONDS = 0.02
PERSON_SECONDS = 0.25


class Turns:
    """Who may use the event loop next. One for each loop: `turns()`."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._nobody_waits = asyncio.Event()
        self._nobody_waits.set()
        self._people = 0
        self._worked = 0.0

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Wait for the turn to do one piece of heavy work; the loop goes round after enough of it.

        It gives way to people for 20 ms at most, so that many requests slow a scan but never
        stop it.
        """
        async with self._lock:
            if self._people:
                with suppress(TimeoutError):
                    async with asyncio.timeout(MOST_PATIENCE_SECONDS):
                        await self._nobody_waits.wait()
            started = time.perf_counter()
            yield
            self._worked += time.perf_counter() - started
            if self._worked >= ROUND_SECONDS:
                self._worked = 0.0
                await asyncio.sleep(0)

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
