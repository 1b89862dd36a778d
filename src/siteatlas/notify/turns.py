"""The turn of an endpoint: sends the messages behind its position one by one, and records each.

A turn ends when a message fails, when none is left, when another process has the endpoint, and
after a while, so that a slow receiver does not keep its slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from uuid import UUID

from siteatlas.errors import DatabaseError, SiteatlasError
from siteatlas.insights.feed_positions import FeedHeadView, read_head
from siteatlas.insights.webhook_messages import (
    MessageFilter,
    MessagePlace,
    next_messages,
    read_message,
)
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.notify.messages import Message, empty_message, feed_message
from siteatlas.notify.schedule import Attempt, Verdict, judge_failure
from siteatlas.notify.sending import Sender, delivery_of
from siteatlas.storage.session import AsyncSession
from siteatlas.storage.statements.webhook_deliveries import (
    ClaimedEndpoint,
    is_just_before,
    pass_numbers,
    record_delivered,
    record_failed,
    release_endpoints,
    renew_lease,
)
from siteatlas.storage.statements.webhooks import LAST_RANK

# Then the endpoint returns to the others, and the one that waited longest is next.
BATCHES_PER_TURN = 10
TURN_SECONDS = 30.0

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
        seconds: float = TURN_SECONDS,
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
        """Whether another message may be sent in this turn."""
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
        """Deliver one message after the other until the turn is over."""
        for _ in range(BATCHES_PER_TURN):
            if not await self._deliver_batch():
                return
        async with self._transaction() as session:
            await release_endpoints(session, [self._endpoint])

    async def _deliver_batch(self) -> bool:
        """Deliver the next messages, or pass numbers that have none; False if the turn is over."""
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
        """Pass numbers that have no message; False if the turn is over."""
        goes_on = upper < head.seq and self._has_time
        is_ours = await pass_numbers(session, self._endpoint, upper, keep_lease=goes_on)
        self._move(upper, LAST_RANK)
        return is_ours and goes_on

    async def _deliver_one(self, place: MessagePlace, feed_id: UUID) -> bool:
        """Deliver a message if the endpoint is still ours; False if the turn is over."""
        self._begin(place, feed_id)
        async with self._transaction() as session:
            facts = await read_message(session, place)
            is_ours = facts is None or await renew_lease(session, self._endpoint)
        if facts is None:
            self._move(place.seq, place.rank)
        if facts is None or not is_ours:
            return is_ours
        self._message = feed_message(facts, feed_id, self._public_url)
        sender = await self._open_sender()
        return await self._record(self._message, await sender.send(self._message))

    def _begin(self, place: MessagePlace, feed_id: UUID) -> None:
        """Remember the message that is next; failures at another one, which is gone, are over."""
        self._message = empty_message(place, feed_id)
        if not is_just_before(self._endpoint, place.seq, place.rank):
            self._endpoint = replace(self._endpoint, failures=0)

    async def _open_sender(self) -> Sender:
        """The connection to the endpoint, which is kept until the end of the turn."""
        if self._sender is None:
            connection = self._connect(self._endpoint)
            self._sender = await self._connections.enter_async_context(connection)
        return self._sender

    async def _record(self, message: Message, attempt: Attempt) -> bool:
        """Record an attempt; False if the turn is over."""
        if attempt.delivered:
            return await self._record_delivered(message, attempt)
        await self._record_failed(attempt)
        return False

    async def _record_delivered(self, message: Message, attempt: Attempt) -> bool:
        """Record a delivered message; False if the turn is over."""
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
        """Log a failed attempt that was recorded."""
        log.warning(
            "webhook_disabled" if verdict.disable else "webhook_not_delivered",
            webhook_id=str(self._endpoint.id),
            message_id=None if self._message is None else self._message.id,
            attempt=self._endpoint.failures + 1,
            http_status=attempt.status,
            error_code=attempt.error_code,
        )

    def _move(self, seq: int, rank: int) -> None:
        """Continue behind a message that was delivered or passed."""
        self._message = None
        self._endpoint = replace(self._endpoint, position=seq, position_rank=rank, failures=0)


def _filter_of(endpoint: ClaimedEndpoint) -> MessageFilter:
    """Which messages an endpoint gets next."""
    return MessageFilter(
        endpoint.types, endpoint.domains, endpoint.position, endpoint.position_rank
    )


def _warn_of_lost_messages(endpoint: ClaimedEndpoint, head: FeedHeadView) -> None:
    """Log that events were removed from the feed before they were sent to an endpoint."""
    if endpoint.position < head.retained_from:
        log.warning(
            "webhook_messages_lost",
            webhook_id=str(endpoint.id),
            after_seq=endpoint.position,
            retained_from=head.retained_from,
        )
