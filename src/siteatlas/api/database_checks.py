"""Database checks with a deadline, for when the database does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from siteatlas.errors import DatabaseTimeout
from siteatlas.storage.session import AsyncSession, get_session

# Prometheus and load balancers time out after about ten seconds and must learn of an outage.
PROBE_SECONDS = 3.0

AnswerT = TypeVar("AnswerT")


class DatabaseProbe(Generic[AnswerT]):
    """One query, sent in its own transaction.

    A call made while an earlier one is still waiting joins it: probes of a database that hangs take
    one connection, however many there are. A call is left alone, not cancelled: giving up a
    statement means to ask the same server again.
    """

    def __init__(
        self,
        question: Callable[[AsyncSession], Awaitable[AnswerT]],
        seconds: float = PROBE_SECONDS,
    ) -> None:
        self._question = question
        self._seconds = seconds
        self._call: asyncio.Task[AnswerT] | None = None

    async def ask(self) -> AnswerT:
        """The answer; DatabaseTimeout when there is none in time."""
        call = self._call
        if call is None or call.done():
            call = self._call = asyncio.create_task(self._asked())
            call.add_done_callback(_take_note)
        done, _ = await asyncio.wait({call}, timeout=self._seconds)
        if not done:
            raise DatabaseTimeout(f"The database did not respond within {self._seconds:g} seconds.")
        return call.result()

    async def _asked(self) -> AnswerT:
        async with get_session() as session, session.begin():
            return await self._question(session)


def _take_note(call: asyncio.Task[AnswerT]) -> None:
    """Retrieve the exception: the caller may be gone, and asyncio would report it as unhandled."""
    if not call.cancelled():
        call.exception()
