"""The room of each user in the queue, and the turns of requests that fill it.

A request takes its turn before it takes a connection to the database, so that the requests of one
user never wait with all of them; a lock in the database does the same for other processes. A single
scan needs no turn unless the queue is almost full.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from siteatlas.access.identity import Identity
from siteatlas.aio.quota import Quota
from siteatlas.errors import TooManyQueuedScans, TooManyRequests
from siteatlas.queue.pending_jobs import count_pending, lock_pending
from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import SYSTEM_USER_ID
from siteatlas.storage.session import AsyncSession, get_autocommit_session

FULL_RETRY_SECONDS = 60.0
TURN_SECONDS = 10.0
TURN_RETRY_SECONDS = 5.0
TURN_REFUSED = "Too many requests of this user are waiting to queue scans. Try again."

ItemT = TypeVar("ItemT")


class UserQueue:
    """What the requests of one user in this process are about to queue."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.scans = 0
        self._single_scans = 0
        self._no_single_scans = asyncio.Event()

    @contextmanager
    def storing(self, scans: int) -> Iterator[None]:
        """Count scans until they are stored, or given up."""
        self.scans += scans
        try:
            yield
        finally:
            self.scans -= scans

    @contextmanager
    def storing_single_scan(self) -> Iterator[None]:
        """Count a scan that is stored without a turn."""
        self._single_scans += 1
        self._no_single_scans.clear()
        try:
            with self.storing(1):
                yield
        finally:
            self._single_scans -= 1
            if not self._single_scans:
                self._no_single_scans.set()

    async def wait_for_single_scans(self) -> None:
        """Wait until no scan is being stored without a turn."""
        while self._single_scans:
            await self._no_single_scans.wait()


class QueueRoom:
    """The limit of pending jobs per user. `waiting` limits the requests that wait for a turn."""

    def __init__(self, max_queued: int, waiting: Quota) -> None:
        self.waiting = waiting
        self._max_queued = max_queued
        # A record lasts as long as the requests that use it.
        self._queues: WeakValueDictionary[UUID, UserQueue] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, identity: Identity, *, is_needed: bool = True) -> AsyncIterator[QueueTurn]:
        """The turn of the sender to queue scans, one request at a time.

        To be taken before a connection. TooManyRequests if too many others are waiting, or if they
        take too long. Nobody waits in local mode, nor for a request that will queue nothing.
        """
        turn = QueueTurn(self, identity)
        try:
            if is_needed and not identity.is_local:
                self._refuse_beyond_waiting(identity.user_id)
                await turn.begin()
            yield turn
        finally:
            turn.end()

    def _refuse_beyond_waiting(self, user_id: UUID) -> None:
        """Raise TooManyRequests if a request would have to wait and too many others do."""
        if self.queue_of(user_id).turn.locked() and not self.waiting.has_room(user_id):
            raise TooManyRequests(TURN_REFUSED, retry_after=TURN_RETRY_SECONDS)

    @asynccontextmanager
    async def single_scan(self, identity: Identity) -> AsyncIterator[None]:
        """Room for one scan, which is stored in this block; TooManyQueuedScans if there is none.

        What other requests of this process are storing counts as pending, which needs no lock. If
        there is room only without it, the scan takes its turn and is counted again.
        """
        async with AsyncExitStack() as held:
            if not identity.is_local:
                await self._hold_room_at_once(identity, held)
            yield

    async def _hold_room_at_once(self, identity: Identity, held: AsyncExitStack) -> None:
        """Count a single scan until `held` ends, without a turn if there is room in any case."""
        queue = self.queue_of(identity.user_id)
        held.enter_context(queue.storing_single_scan())
        # Read before the statement: a scan that is stored meanwhile is counted at least once.
        scans = queue.scans
        async with get_autocommit_session() as session:
            pending = await count_pending(session, identity.user_id, self._max_queued)
        self._refuse_beyond_limit(pending + 1)
        if pending + scans > self._max_queued:
            await held.aclose()
            await self._hold_room_in_turn(identity, queue, held)

    async def _hold_room_in_turn(
        self, identity: Identity, queue: UserQueue, held: AsyncExitStack
    ) -> None:
        """Count a single scan until `held` ends, after all others have been stored."""
        await held.enter_async_context(self.turn(identity))
        await _in_time(queue.wait_for_single_scans())
        held.enter_context(queue.storing(1))
        async with get_autocommit_session() as session:
            await self.require(session, identity.user_id, queue.scans)

    async def require(self, session: Reader, user_id: UUID, scans: int) -> None:
        """Raise TooManyQueuedScans if there is no room for this many more scans of a user."""
        self._refuse_beyond_limit(await count_pending(session, user_id, self._max_queued) + scans)

    def queue_of(self, user_id: UUID) -> UserQueue:
        """The record of a user; it lasts while someone holds it."""
        return self._queues.setdefault(user_id, UserQueue())

    def _refuse_beyond_limit(self, scans: int) -> None:
        """Raise TooManyQueuedScans if a user may not have this many pending jobs."""
        if scans > self._max_queued:
            raise TooManyQueuedScans(
                f"At most {self._max_queued:,} scans of a user may be queued. "
                "Wait until some have ended.",
                retry_after=FULL_RETRY_SECONDS,
            )


class QueueTurn:
    """The turn of a request; it reserves room in each of its transactions that queue scans."""

    def __init__(self, room: QueueRoom, identity: Identity) -> None:
        self._room = room
        self._identity = identity
        self._queue = room.queue_of(identity.user_id)
        self._has_begun = False
        self._reserved = ExitStack()

    async def begin(self) -> None:
        """Wait for the turn; TooManyRequests if that takes too long."""
        with self._room.waiting.taken_by(self._identity.user_id):
            await _in_time(self._queue.turn.acquire())
        self._has_begun = True

    def end(self) -> None:
        """End the turn and what it has reserved."""
        self._reserved.close()
        if self._has_begun:
            self._has_begun = False
            self._queue.turn.release()

    async def each(self, items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
        """The items, with a transaction for each; requests that wait have their turn in between."""
        for number, item in enumerate(items):
            if number and self._has_begun:
                self.end()
                await self.begin()
            yield item

    async def require(self, sites: int) -> None:
        """Raise TooManyQueuedScans if the sender cannot queue this many scans; reserves nothing."""
        if not self._identity.is_local:
            async with get_autocommit_session() as session:
                await self._room.require(session, self._identity.user_id, sites)

    async def reserve(
        self, session: AsyncSession, sites: int = 1, *, owner: UUID | None = None
    ) -> None:
        """Lock the queue of the user until the transaction ends; TooManyQueuedScans if it is full.

        Call it before the transaction locks rows. `owner` is the user whose scans they are, if not
        the sender; those of the schedule, which has no limit, count for the sender.
        """
        if self._identity.is_local:
            return
        user_id = self._identity.user_id if owner in {None, SYSTEM_USER_ID} else owner
        queue = self._room.queue_of(user_id)
        self._reserved.close()
        self._reserved.enter_context(queue.storing(sites))
        await lock_pending(session, user_id)
        await self._room.require(session, user_id, queue.scans)


async def _in_time(waiting: Coroutine[Any, Any, object]) -> None:
    """Wait no longer than a turn may take; TooManyRequests if it takes longer."""
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await waiting
    except TimeoutError as error:
        raise TooManyRequests(TURN_REFUSED, retry_after=TURN_RETRY_SECONDS) from error
