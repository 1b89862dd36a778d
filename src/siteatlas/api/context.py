"""What routes share: the context that `main` passes, parameters, and response texts.

The context contains the egress policy, the settings, the scheduler, and database checks that
respond in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar
from uuid import UUID

from fastapi import Depends, Path, Request

from siteatlas.access.keys import Installation
from siteatlas.aio import Quota, SharedCall
from siteatlas.api.problems import FieldRefused
from siteatlas.catalog.change_feed import read_head
from siteatlas.catalog.findings import FindingTotal, FindingTotals
from siteatlas.catalog.newest_changes import ChangesOverTime
from siteatlas.errors import AddressError, DatabaseError, DatabaseTimeout
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy, parse_allowed_site
from siteatlas.process import connection_limit
from siteatlas.queue.metrics import DatabaseState, EndedJobs, QueueLoad, database_state, queue_load
from siteatlas.queue.views import any_worker_alive
from siteatlas.settings import Settings
from siteatlas.storage.session import (
    AsyncSession,
    AutocommitSession,
    Reader,
    get_autocommit_session,
    get_session,
)

NO_WORKER = "No worker has been seen for a minute. Start one with: siteatlas worker"
STATUS_PATH = "/api/v3/sitemap/status/{job_id}"

AnswerT = TypeVar("AnswerT")

log = get_logger("api")


async def _request_session() -> AsyncIterator[AsyncSession]:
    async with get_session() as session:
        yield session


async def _request_transaction() -> AsyncIterator[AsyncSession]:
    async with get_session() as session, session.begin():
        yield session


async def _request_autocommit_session() -> AsyncIterator[AutocommitSession]:
    async with get_autocommit_session() as session:
        yield session


# In a transaction that lasts as long as the handler.
ReadSession = Annotated[AsyncSession, Depends(_request_transaction, scope="function")]
# The handler begins the transaction, because what it does after the commit must not come earlier.
WriteSession = Annotated[AsyncSession, Depends(_request_session, scope="function")]
# For a handler that reads with a single statement.
SingleReadSession = Annotated[
    AutocommitSession, Depends(_request_autocommit_session, scope="function")
]


class DatabaseProbe(Generic[AnswerT]):
    """One query, sent in its own transaction; requests that come while it runs share it."""

    def __init__(
        self,
        query: Callable[[AsyncSession], Awaitable[AnswerT]],
        # Prometheus and load balancers give up after about ten seconds and must learn of an outage.
        seconds: float = 3.0,
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
        async with get_session() as session, session.begin():
            return await self._query(session)


def waiting_quota(max_connections: int) -> Quota:
    """The requests that may wait in a service with so many connections, and a user's share."""
    connections = connection_limit(max_connections)
    # Each of them occupies a connection of the service.
    total = max(1, min(100, connections // 5))
    return Quota(total, per_user=max(1, total // 4))


class FeedWatcher:
    """The head of the feed as this process last saw it, polled while a request waits."""

    def __init__(self, quota: Quota, poll_seconds: float = 0.5) -> None:
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
        self._moved.set()
        self._moved = asyncio.Event()


@dataclass(slots=True)
class ApiContext:
    """The callbacks of the scheduler are None in a process without one."""

    settings: Settings
    policy: EgressPolicy
    installation: Installation = field(default_factory=Installation)
    wake: Callable[[], None] | None = None
    reschedule: Callable[[], None] | None = None
    drain: Callable[[], Awaitable[None]] | None = None
    scheduler_is_alive: Callable[[], bool] | None = None
    database_state: DatabaseProbe[DatabaseState] = field(init=False)
    queue_load: DatabaseProbe[QueueLoad] = field(init=False)
    changes_over_time: ChangesOverTime = field(init=False, default_factory=ChangesOverTime)
    finding_totals: DatabaseProbe[list[FindingTotal]] = field(init=False)
    feed: FeedWatcher = field(init=False)
    _worker_seen_until: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.feed = FeedWatcher(waiting_quota(self.settings.max_connections))
        ended_jobs = EndedJobs()
        self.database_state = DatabaseProbe(database_state)
        self.queue_load = DatabaseProbe(lambda session: queue_load(session, ended_jobs))
        # More than the server gives a statement of a request, so that its error comes first.
        self.finding_totals = DatabaseProbe(FindingTotals().read, 12.0)

    @property
    def scheduler_has_ended(self) -> bool:
        """Whether this process has a scheduler that no longer works."""
        return self.scheduler_is_alive is not None and not self.scheduler_is_alive()

    def wake_consumer(self) -> None:
        """Wake the consumer of this process, if there is one, after a job was committed."""
        if self.wake is not None:
            self.wake()

    def notify_scheduler(self) -> None:
        """Notify the scheduler of this process, if there is one, that something may be due earlier.

        A site that is watched, or a webhook that was created or changed.
        """
        if self.reschedule is not None:
            self.reschedule()

    @property
    def knows_live_worker(self) -> bool:
        """Whether a worker is running as far as this process knows without asking the database."""
        works_itself = self.wake is not None and not self.scheduler_has_ended
        return works_itself or time.monotonic() < self._worker_seen_until

    async def has_live_worker(self, session: Reader) -> bool:
        """Whether a worker is running, for the warning in responses; True is cached briefly."""
        if self.knows_live_worker:
            return True
        alive = await any_worker_alive(session)
        if alive:
            self._worker_seen_until = time.monotonic() + 10.0
        return alive


async def api_context(request: Request) -> ApiContext:
    """The context that `main` put into the application."""
    context = request.app.state.api
    assert isinstance(context, ApiContext)
    return context


Context = Annotated[ApiContext, Depends(api_context)]
JobIdent = Annotated[
    str, Path(max_length=64, description="The UUID or the number of a job.", examples=["42"])
]


def parse_site_field(pointer: str, text: str, policy: EgressPolicy) -> WebAddress:
    """Parse the site address in the field at `pointer`; errors name the field."""
    try:
        return parse_allowed_site(text, policy)
    except AddressError as error:
        raise FieldRefused((pointer, error)) from error
