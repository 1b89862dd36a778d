"""A thread for calls that may block the event loop indefinitely.

It never keeps the process alive: a reader that stalls forever must not prevent a second Ctrl-C.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")


class DaemonWorker:
    """Runs calls one after the other, in the order in which they were submitted."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_calls, name=name, daemon=True)

    def submit(self, call: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run `call` after all earlier ones; cancelling the future does not prevent it."""
        if not self._thread.is_alive():
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def settle_future(result: Result | None, error: BaseException | None) -> None:
            """Set the outcome of the call, on the event loop."""
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run_call() -> None:
            """Run the call in the daemon thread, then settle its future on the event loop."""
            result, error = None, None
            try:
                result = call()
            except BaseException as fault:  # noqa: BLE001 it is raised where the future is awaited
                error = fault
            # The loop may be closed when the command has ended without waiting for this call.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle_future, result, error)

        self._calls.put(run_call)
        return future

    def _run_calls(self) -> None:
        """The daemon thread: run the submitted calls, forever."""
        while True:
            self._calls.get()()
