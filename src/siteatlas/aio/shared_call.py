"""A call with a deadline that all who ask for it meanwhile share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

AnswerT = TypeVar("AnswerT")


class SharedCall(Generic[AnswerT]):
    """A call that runs at most once at a time; who asks while it runs waits for the same answer.

    After the deadline the call goes on, and the next one to ask joins it: a query to a database
    that hangs takes one connection, however often it is asked for, and cancelling a statement needs
    a response from the same server.
    """

    def __init__(self, call: Callable[[], Coroutine[Any, Any, AnswerT]]) -> None:
        self._make = call
        self._call: asyncio.Task[AnswerT] | None = None

    async def run(self, seconds: float) -> AnswerT:
        """The answer; TimeoutError if it takes longer than `seconds`."""
        call = self._call
        if call is None or call.done():
            call = self._call = asyncio.create_task(self._make())
            call.add_done_callback(_retrieve_error)
        done, _ = await asyncio.wait({call}, timeout=seconds)
        if not done:
            raise TimeoutError
        return call.result()

    async def cancel(self, seconds: float) -> None:
        """Cancel a call that is still running, and wait for its end for at most `seconds`."""
        if self._call is not None:
            self._call.cancel()
            await asyncio.wait({self._call}, timeout=seconds)


def _retrieve_error(call: asyncio.Task[AnswerT]) -> None:
    """Retrieve the error of a call that nobody waits for any more; else asyncio would log it."""
    if not call.cancelled():
        call.exception()
