"""Signals of a service: the first asks it to end in good order, the second ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from siteatlas.cli.output import say

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
LAST_RESORT_SECONDS = 30
SIGNAL_EXIT = 128


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first signal; leave at once on the second, or if stopping hangs."""
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def leave(number: int) -> None:
        os._exit(SIGNAL_EXIT + number)

    def receive(number: int) -> None:
        if asked:
            leave(number)
        asked.append(number)
        loop.call_later(LAST_RESORT_SECONDS, leave, number)
        stop()
        # Whoever read our words may be gone; that must not keep us from stopping.
        with suppress(OSError, ValueError):
            say("Stopping; once more to leave at once.")

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
