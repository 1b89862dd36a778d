"""Signal handling: the first signal requests a clean shutdown, the second exits immediately."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from siteatlas.cli.terminal.output import print_message

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
LAST_RESORT_SECONDS = 30
SIGNAL_EXIT = 128


def leave(number: int, _frame: object = None) -> None:
    """Exit immediately, with the exit code of a process that this signal ended."""
    os._exit(SIGNAL_EXIT + number)


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Ctrl-C ends the process immediately and silently; after the block it is ignored.

    What follows the block is the end of the interpreter, which a signal would make noisy.
    """
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def stop_on_signals(
    stop: Callable[[], None],
    clean_up: Callable[[], None] = lambda: None,
    announce: Callable[[str], None] = print_message,
) -> Iterator[None]:
    """Call `stop` on the first signal; exit immediately on the second, or if stopping hangs.

    `clean_up` runs before an immediate exit, at any point: it must not wait for a lock.
    `announce` receives the message for the user.
    """
    loop = asyncio.get_running_loop()
    earlier = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def leave_clean(number: int, _frame: object = None) -> None:
        """Clean up and exit immediately, on a second signal or when stopping takes too long."""
        with suppress(OSError):
            clean_up()
        leave(number)

    def receive(number: int) -> None:
        """Handle the first signal: request a clean shutdown and prepare for a second one."""
        # Not through the loop, which may be busy.
        for any_number in STOP_SIGNALS:
            signal.signal(any_number, leave_clean)
        loop.call_later(LAST_RESORT_SECONDS, leave_clean, number)
        stop()
        # The reader of stderr may be gone; that must not prevent the shutdown.
        with suppress(OSError, ValueError):
            announce("Shutting down; press Ctrl-C again to quit immediately.")

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, earlier[number] or signal.SIG_DFL)
