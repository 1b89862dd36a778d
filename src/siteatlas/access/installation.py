"""Whether the installation is open or closed: it is closed once an access key was made.

Every process asks the database; an answer holds for a second. While the database is unavailable,
the last answer holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from siteatlas.aio.shared_call import SharedCall
from siteatlas.errors import DatabaseError, DatabaseTimeout
from siteatlas.storage.session import get_autocommit_session
from siteatlas.storage.statements.api_keys import any_key_made

MAX_AGE_SECONDS = 1.0
REFRESH_SECONDS = 0.5
ANSWER_SECONDS = 1.0


async def _any_key_made() -> bool:
    """Ask the database whether a key was made."""
    async with get_autocommit_session() as session:
        return await any_key_made(session)


class Installation:
    """The state of an installation as this process knows it; `known` is None before it asked."""

    def __init__(
        self,
        *,
        is_closed: bool | None = None,
        query: Callable[[], Coroutine[Any, Any, bool]] = _any_key_made,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.known = is_closed
        self._clock = clock
        self._checked_at = float("-inf")
        self._closed_at = float("-inf")
        self._run_query = query
        self._query = SharedCall(self._dated_answer)
        self._refresh: asyncio.Task[None] | None = None

    async def is_closed(self) -> bool:
        """Whether every request needs a key; DatabaseError if that was never known."""
        age = self._clock() - self._checked_at
        if self.known is None or age >= MAX_AGE_SECONDS:
            await self._check()
        elif age >= REFRESH_SECONDS and (self._refresh is None or self._refresh.done()):
            # Ahead of time, so that under load no request has to wait for the answer.
            self._refresh = asyncio.create_task(self._check())
        return bool(self.known)

    def close(self) -> None:
        """Take note that this process has just made a key."""
        self.known = True
        self._closed_at = self._clock()

    async def finish(self) -> None:
        """End a refresh that is still running, before the database is closed."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait({self._refresh})
        await self._query.cancel(ANSWER_SECONDS)

    async def _check(self) -> None:
        """Ask the database; keep what is known if it does not respond."""
        try:
            asked_at, made = await self._query.run(ANSWER_SECONDS)
        except (DatabaseError, TimeoutError) as error:
            if self.known is None:
                raise error if isinstance(error, DatabaseError) else DatabaseTimeout from error
        else:
            # A query that began earlier may have missed the key that this process made.
            if made or asked_at > self._closed_at:
                self.known = made
        self._checked_at = self._clock()

    async def _dated_answer(self) -> tuple[float, bool]:
        """Whether a key was made, and when the query began."""
        began = self._clock()
        return began, await self._run_query()
