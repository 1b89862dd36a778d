"""Requests that wait for the next publication: one poll of the feed's head wakes all of them.

Nobody holds a database connection while waiting. What was published is read by the route.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from siteatlas.aio.quota import Quota
from siteatlas.errors import DatabaseError
from siteatlas.insights.feed_positions import read_head
from siteatlas.logs import get_logger
from siteatlas.process import connection_limit
from siteatlas.storage.session import get_autocommit_session

POLL_SECONDS = 0.5
# Each of them occupies a connection of the service.
CONNECTIONS_PER_WAITING_REQUEST = 5
MAX_WAITING = 100
USERS_TO_FILL_QUOTA = 4

log = get_logger("api")


def waiting_quota(max_connections: int) -> Quota:
    """The requests that may wait in a service with so many connections, and a user's share."""
    connections = connection_limit(max_connections)
    total = max(1, min(MAX_WAITING, connections // CONNECTIONS_PER_WAITING_REQUEST))
    return Quota(total, per_user=max(1, total // USERS_TO_FILL_QUOTA))


class FeedWatcher:
    """The head of the feed as this process last saw it, polled while a request waits."""

    def __init__(self, quota: Quota, poll_seconds: float = POLL_SECONDS) -> None:
        self._quota = quota
        self._poll_seconds = poll_seconds
        self._seq = -1
        self._moved = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self._quota.taken

    async def wait_beyond(self, seq: int, seconds: float, holder: UUID | None) -> bool:
        """Wait until the feed has a number after `seq`; False if it has none in time.

        Returns at once if too many requests wait, in total or of this holder, or when the service
        stops.
        """
        if not self._quota.has_room(holder):
            return False
        with self._quota.taken_by(holder):
            try:
                async with asyncio.timeout(seconds):
                    while self._seq <= seq and not self._closed:
                        await self._next_move()
            except TimeoutError:
                return False
        return self._seq > seq

    def close(self) -> None:
        """End all waiting, now and later: the service stops."""
        self._closed = True
        self._wake_all()

    async def _next_move(self) -> None:
        """Wait for the next change of the head; the first to wait starts the poll."""
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(), name="feed head")
        await self._moved.wait()

    async def _poll(self) -> None:
        """Look at the head until nobody waits; an outage is waited for like a publication."""
        while self.waiting and not self._closed:
            try:
                async with get_autocommit_session() as session:
                    head = await read_head(session)
            except DatabaseError as error:
                log.warning("feed_poll_failed", reason=error.code)
            else:
                if head.seq != self._seq:
                    self._seq = head.seq
                    self._wake_all()
            await asyncio.sleep(self._poll_seconds)

    def _wake_all(self) -> None:
        """Wake all who wait, once."""
        self._moved.set()
        self._moved = asyncio.Event()
