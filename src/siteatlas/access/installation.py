"""Whether the installation is open or closed: it is closed once an access key was made.

Every process asks the database, at most once a second. While the database is unavailable, the last
answer holds.
"""

from __future__ import annotations

import time

from siteatlas.aio.shared_call import SharedCall
from siteatlas.errors import DatabaseError, DatabaseTimeout
from siteatlas.storage.session import get_autocommit_session
from siteatlas.storage.statements.api_keys import any_key_made

MAX_AGE_SECONDS = 1.0
ANSWER_SECONDS = 1.0


class Installation:
    """The state of an installation as this process knows it; `known` is None before it asked."""

    def __init__(self, *, is_closed: bool | None = None) -> None:
        self.known = is_closed
        self._asked_at = float("-inf")
        self._question = SharedCall(_any_key_made)

    async def is_closed(self) -> bool:
        """Whether every request needs a key; DatabaseError if that was never known."""
        if self.known is None or time.monotonic() - self._asked_at >= MAX_AGE_SECONDS:
            await self._ask()
        return bool(self.known)

    def close(self) -> None:
        """Take note that this process has just made a key."""
        self.known = True

    async def _ask(self) -> None:
        """Ask the database; keep what is known if it does not respond."""
        try:
            self.known = await self._question.run(ANSWER_SECONDS)
        except (DatabaseError, TimeoutError) as error:
            if self.known is None:
                raise error if isinstance(error, DatabaseError) else DatabaseTimeout from error
        self._asked_at = time.monotonic()


async def _any_key_made() -> bool:
    """Ask the database whether a key was made."""
    async with get_autocommit_session() as session:
        return await any_key_made(session)
