"""Turns on the event loop: heavy work in small pieces, little per round, and people go first.

A database write and an answer to a request need a dozen rounds each. A round that holds no more
than a few milliseconds of heavy work keeps both quick, however many scans run in this process.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from siteatlas.aio.loop_local import PerLoop
from siteatlas.aio.priority_semaphore import Places

COLLECT_AFTER = (2_000, 10, 100)
ROUND_SECONDS = 0.001
MOST_PATIENCE_SECONDS = 0.05
OWN_SECONDS = 0.01
PERSON_SECONDS = 0.25

PieceT = TypeVar("PieceT")


class Turns:
    """Who may use the event loop next. One for each loop: `turns()`."""

    def __init__(self) -> None:
        self._turn = Places(1)
        self._nobody_waits = asyncio.Event()
        self._nobody_waits.set()
        self._people = 0
        self._worked = 0.0
        self._impatient_until = 0.0

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Wait for the turn to do a piece of heavy work. Enough of it, and the loop goes round."""
        async with self._turn:
            await self.people_first()
            started = time.perf_counter()
            yield
            self._worked += time.perf_counter() - started
            if self._worked >= ROUND_SECONDS:
                self._worked = 0.0
                await asyncio.sleep(0)

    async def pieces(self, work: Iterable[PieceT]) -> AsyncIterator[PieceT]:
        """What an iterable makes, each piece of it made in its own turn."""
        making = iter(work)
        while True:
            async with self.piece():
                made = next(making, None)
            if made is None:
                return
            yield made

    async def people_first(self) -> None:
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


_turns = PerLoop(Turns)


def turns() -> Turns:
    """The turns of the running event loop."""
    return _turns.here()


def spare_what_stays() -> None:
    """Take all objects of the start out of the collector's rounds, which stop everything.

    They live as long as the process, and looking at them took a tenth of a second each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
