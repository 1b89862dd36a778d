"""Values that exist once per event loop, because locks cannot be shared between loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class LoopLocal(threading.local, Generic[ValueT]):
    """One object for the loop that runs in a thread; that of an ended loop is let go.

    A dictionary keyed by loop would keep both alive forever: the object holds futures, and those
    hold their loop.
    Loops that take turns in one thread, which is rare, get a new object at each turn.
    """

    def __init__(self, make: Callable[[], ValueT]) -> None:
        self._make = make
        self._made: tuple[asyncio.AbstractEventLoop, ValueT] | None = None

    def get(self) -> ValueT:
        """The object of the running loop, created on first access."""
        loop = asyncio.get_running_loop()
        if self._made is None or self._made[0] is not loop:
            self._made = loop, self._make()
        return self._made[1]
