"""Database checks of `/health/database` and `/metrics`, with a deadline."""

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

    A request made while an earlier one is still waiting joins it: probes of a database that hangs
    take one connection, however many there are. After the deadline the query goes on: cancelling a
    statement needs a response from the same server.
    """

    def __init__(
        self,
        query: Callable[[AsyncSession], Awaitable[AnswerT]],
        seconds: float = PROBE_SECONDS,
    ) -> None:
        self._query = query
        self._seconds = seconds
        self._call: asyncio.Task[AnswerT] | None = None

    async def run(self) -> AnswerT:
        """The result of the query for a request; DatabaseTimeout if it takes too long."""
        call = self._call
        if call is None or call.done():
            call = self._call = asyncio.create_task(self._run_query())
            call.add_done_callback(_retrieve_check_error)
        done, _ = await asyncio.wait({call}, timeout=self._seconds)
        if not done:
            raise DatabaseTimeout(f"The database did not respond within {self._seconds:g} seconds.")
        return call.result()

    async def _run_query(self) -> AnswerT:
        """Run the database check of a health or metrics request in its own transaction."""
        async with get_session() as session, session.begin():
            return await self._query(session)


def _retrieve_check_error(call: asyncio.Task[AnswerT]) -> None:
    """Retrieve the error of a check whose HTTP request has ended; else asyncio would log it."""
    if not call.cancelled():
        call.exception()
