"""Delivers messages: claims endpoints, and runs a turn of each of them in one of its slots.

The database decides who delivers to an endpoint, so any number of processes may run a dispatcher.
Endpoints have separate slots here, and share one database connection, so that they never hold
up a scan.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from dataclasses import replace
from enum import Enum, auto
from uuid import UUID

from siteatlas.catalog.change_feed import FeedHeadView, read_head
from siteatlas.catalog.webhooks import (
    LAST_RANK,
    ClaimedEndpoint,
    MessageFilter,
    MessagePlace,
    any_endpoint_enabled,
    claim_endpoints,
    is_just_before,
    next_messages,
    pass_numbers,
    read_message,
    record_delivered,
    record_failed,
    release_endpoints,
    renew_lease,
)
from siteatlas.errors import DatabaseError, SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.messages import (
    ATTEMPT_SECONDS,
    Attempt,
    Message,
    Sender,
    Verdict,
    delivery_of,
    empty_message,
    feed_message,
    judge_failure,
    open_sender,
)
from siteatlas.settings import Settings
from siteatlas.storage.session import AsyncSession, get_background_session

Transaction = Callable[[], AbstractAsyncContextManager[AsyncSession]]
Connect = Callable[[ClaimedEndpoint], AbstractAsyncContextManager[Sender]]

log = get_logger("notify")


class Turn:
    """One turn of one endpoint. The connection is opened when there is a message to send."""

    def __init__(
        self,
        endpoint: ClaimedEndpoint,
        transaction: Transaction,
        connect: Connect,
        *,
        public_url: str,
        seconds: float,
    ) -> None:
        self._endpoint = endpoint
        self._transaction = transaction
        self._connect = connect
        self._public_url = public_url
        self._ends_at = asyncio.get_running_loop().time() + seconds
        self._connections = AsyncExitStack()
        self._sender: Sender | None = None
        self._message: Message | None = None

    @property
    def _has_time(self) -> bool:
        return asyncio.get_running_loop().time() < self._ends_at

    async def run(self) -> None:
        """Deliver what follows the position of the endpoint; an error ends the turn."""
        try:
            await self._deliver_or_fail()
        except DatabaseError as error:
            # The lease expires; a message that was sent meanwhile is sent again.
            log.warning("webhook_interrupted", webhook_id=str(self._endpoint.id), reason=error.code)

    async def _deliver_or_fail(self) -> None:
        """Deliver; an unexpected error is a failed attempt, so that it is not repeated forever."""
        try:
            async with self._connections:
                await self._deliver()
        except DatabaseError:
            raise
        except Exception:
            log.exception("webhook_failed", webhook_id=str(self._endpoint.id))
            await self._record_failed(Attempt(None, SiteatlasError.code, 0.0))

    async def _deliver(self) -> None:
        # Then the endpoint returns to the others, and the one that waited longest is next.
        for _ in range(10):
            if not await self._deliver_batch():
                return
        async with self._transaction() as session:
            await release_endpoints(session, [self._endpoint])

    async def _deliver_batch(self) -> bool:
        async with self._transaction() as session:
            head = await read_head(session)
            _warn_of_lost_messages(self._endpoint, head)
            upcoming = await next_messages(session, _filter_of(self._endpoint), head)
            if not upcoming.places:
                return await self._pass(session, upcoming.upper, head)
        for place in upcoming.places:
            if not await self._deliver_one(place, head.feed_id):
                return False
        return True

    async def _pass(self, session: AsyncSession, upper: int, head: FeedHeadView) -> bool:
        goes_on = upper < head.seq and self._has_time
        is_ours = await pass_numbers(session, self._endpoint, upper, keep_lease=goes_on)
        self._move(upper, LAST_RANK)
        return is_ours and goes_on

    async def _deliver_one(self, place: MessagePlace, feed_id: UUID) -> bool:
        self._begin(place, feed_id)
        async with self._transaction() as session:
            facts = await read_message(session, place)
            now = await renew_lease(session, self._endpoint) if facts else None
        if facts is None:
            self._move(place.seq, place.rank)
        if facts is None or now is None:
            return facts is None
        self._message = feed_message(facts, feed_id, self._public_url)
        sender = await self._open_sender()
        return await self._record(self._message, await sender.send(self._message, now))

    def _begin(self, place: MessagePlace, feed_id: UUID) -> None:
        """Remember the message that is next; failures at another one, which is gone, are over."""
        self._message = empty_message(place, feed_id)
        if not is_just_before(self._endpoint, place.seq, place.rank):
            self._endpoint = replace(self._endpoint, failures=0)

    async def _open_sender(self) -> Sender:
        if self._sender is None:
            connection = self._connect(self._endpoint)
            self._sender = await self._connections.enter_async_context(connection)
        return self._sender

    async def _record(self, message: Message, attempt: Attempt) -> bool:
        if attempt.delivered:
            return await self._record_delivered(message, attempt)
        await self._record_failed(attempt)
        return False

    async def _record_delivered(self, message: Message, attempt: Attempt) -> bool:
        meters.webhook_attempts["delivered"] += 1
        goes_on = self._has_time
        delivery = delivery_of(message, attempt, self._endpoint.failures + 1)
        async with self._transaction() as session:
            is_ours = await record_delivered(
                session, self._endpoint, delivery, message.rank, keep_lease=goes_on
            )
        self._move(message.seq or 0, message.rank)
        return is_ours and goes_on

    async def _record_failed(self, attempt: Attempt) -> None:
        """Record that the next message failed, if it is known; the turn is over."""
        meters.webhook_attempts["failed"] += 1
        message, number = self._message, self._endpoint.failures + 1
        delivery = None if message is None else delivery_of(message, attempt, number)
        verdict = judge_failure(attempt, self._endpoint.failures)
        async with self._transaction() as session:
            is_ours = await record_failed(
                session,
                self._endpoint,
                delivery,
                0 if message is None else message.rank,
                retry_seconds=verdict.retry_seconds,
                disable=verdict.disable,
            )
        if is_ours:
            self._log_failure(attempt, verdict)

    def _log_failure(self, attempt: Attempt, verdict: Verdict) -> None:
        log.warning(
            "webhook_disabled" if verdict.disable else "webhook_not_delivered",
            webhook_id=str(self._endpoint.id),
            message_id=None if self._message is None else self._message.id,
            attempt=self._endpoint.failures + 1,
            http_status=attempt.status,
            error_code=attempt.error_code,
        )

    def _move(self, seq: int, rank: int) -> None:
        self._message = None
        self._endpoint = replace(self._endpoint, position=seq, position_rank=rank, failures=0)


def _filter_of(endpoint: ClaimedEndpoint) -> MessageFilter:
    return MessageFilter(
        endpoint.types, endpoint.domains, endpoint.position, endpoint.position_rank
    )


def _warn_of_lost_messages(endpoint: ClaimedEndpoint, head: FeedHeadView) -> None:
    if endpoint.position < head.retained_from:
        log.warning(
            "webhook_messages_lost",
            webhook_id=str(endpoint.id),
            after_seq=endpoint.position,
            retained_from=head.retained_from,
        )


SLOTS = 16


class PollResult(Enum):
    """What a poll found: whether there is an enabled webhook, and whether others may wait.

    After `CAUGHT_UP`, every endpoint that has something to be sent is served. After `SLOTS_TAKEN`
    there is no free slot, and others may wait for one.
    """

    NO_WEBHOOK = auto()
    CAUGHT_UP = auto()
    SLOTS_TAKEN = auto()


class Dispatcher:
    """The deliveries of one process."""

    def __init__(
        self,
        settings: Settings,
        policy: EgressPolicy,
        *,
        slots: int = SLOTS,
        attempt_seconds: float = ATTEMPT_SECONDS,
        turn_seconds: float = 30.0,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._slots = slots
        self._attempt_seconds = attempt_seconds
        self._turn_seconds = turn_seconds
        self._connection = asyncio.Semaphore(1)
        self._serving: dict[asyncio.Task[None], ClaimedEndpoint] = {}

    @property
    def is_busy(self) -> bool:
        """Whether an endpoint is being served."""
        return bool(self._serving)

    async def poll(self) -> PollResult:
        """Claim endpoints for the free slots and start their turns."""
        free = self._slots - len(self._serving)
        if free <= 0:
            return PollResult.SLOTS_TAKEN
        async with self._transaction() as session:
            if not await any_endpoint_enabled(session):
                return PollResult.NO_WEBHOOK
            claimed = await claim_endpoints(session, free)
        for endpoint in claimed:
            self._serve(endpoint)
        return PollResult.SLOTS_TAKEN if len(claimed) == free else PollResult.CAUGHT_UP

    async def wait_for_slot(self) -> None:
        """Wait until a slot is free."""
        if len(self._serving) >= self._slots:
            await asyncio.wait(self._serving, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        """End all attempts and return the endpoints, so that others continue at once."""
        interrupted = dict(self._serving)
        for task in interrupted:
            task.cancel()
        await asyncio.gather(*interrupted, return_exceptions=True)
        try:
            async with self._transaction() as session:
                await release_endpoints(session, list(interrupted.values()))
        except DatabaseError as error:
            log.warning("webhooks_not_released", reason=error.code)

    def _serve(self, endpoint: ClaimedEndpoint) -> None:
        turn = Turn(
            endpoint,
            self._transaction,
            self._connect,
            public_url=self._settings.public_url,
            seconds=self._turn_seconds,
        )
        task = asyncio.create_task(turn.run(), name=f"webhook {endpoint.id}")
        self._serving[task] = endpoint
        task.add_done_callback(self._serving.pop)

    def _connect(self, endpoint: ClaimedEndpoint) -> AbstractAsyncContextManager[Sender]:
        return open_sender(endpoint, self._settings, self._policy, self._attempt_seconds)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncSession]:
        """A transaction on the only connection that deliveries use at a time."""
        async with self._connection, get_background_session() as session, session.begin():
            yield session
