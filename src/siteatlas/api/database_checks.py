"""Queries with a deadline that concurrent requests share: health, metrics, figures of pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from siteatlas.aio.shared_call import SharedCall
from siteatlas.errors import DatabaseTimeout
from siteatlas.storage.session import AsyncSession, get_session

# Prometheus and load balancers time out after about ten seconds and must learn of an outage.
PROBE_SECONDS = 3.0

AnswerT = TypeVar("AnswerT")


class DatabaseProbe(Generic[AnswerT]):
    """One query, sent in its own transaction; requests that come while it runs share it."""

    def __init__(
        self,
        query: Callable[[AsyncSession], Awaitable[AnswerT]],
        seconds: float = PROBE_SECONDS,
    ) -> None:
        self._query = query
        self._seconds = seconds
        self._shared = SharedCall(self._run_query)

    async def run(self) -> AnswerT:
        """The result of the query for a request; DatabaseTimeout if it takes too long."""
        try:
            return await self._shared.run(self._seconds)
        except TimeoutError as error:
            raise DatabaseTimeout(
                f"The database did not respond within {self._seconds:g} seconds."
            ) from error

    async def _run_query(self) -> AnswerT:
        """Run the query for all requests that wait for it, in its own transaction."""
        async with get_session() as session, session.begin():
            return await self._query(session)
