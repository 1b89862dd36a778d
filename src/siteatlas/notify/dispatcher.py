"""Delivers messages: claims endpoints, sends what follows their positions, and records the results.

The database decides who delivers to an endpoint, so any number of processes may run a dispatcher.
An endpoint gets one message at a time, in the order of the feed. Endpoints have slots of their own
here, and share one database connection, so that they never hold up a scan.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

from siteatlas.errors import DatabaseError
from siteatlas.insights.feed_positions import FeedHeadView, read_head
from siteatlas.insights.webhook_messages import (
    MessageFilter,
    MessagePlace,
    next_messages,
    read_message,
)
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.messages import Message, feed_message
from siteatlas.notify.schedule import ATTEMPT_SECONDS, Attempt, judge_failure
from siteatlas.notify.sending import Sender, delivery_of, open_sender
from siteatlas.settings import Settings
from siteatlas.storage.session import AsyncSession, get_background_session
from siteatlas.storage.statements.webhook_deliveries import (
    ClaimedEndpoint,
    any_endpoint_enabled,
    claim_endpoints,
    pass_numbers,
    record_delivered,
    record_failed,
    release_endpoints,
)
from siteatlas.storage.statements.webhooks import LAST_RANK

SLOTS = 16
# Then the endpoint returns to the others, and the one that waited longest is next.
BATCHES_PER_TURN = 10

log = get_logger("notify")


class Dispatcher:
    """The deliveries of one process."""

    def __init__(
        self,
        settings: Settings,
        policy: EgressPolicy,
        *,
        slots: int = SLOTS,
        attempt_seconds: float = ATTEMPT_SECONDS,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._slots = slots
        self._attempt_seconds = attempt_seconds
        self._connection = asyncio.Semaphore(1)
        self._serving: dict[asyncio.Task[None], ClaimedEndpoint] = {}

    @property
    def is_busy(self) -> bool:
        """Whether an endpoint is being served."""
        return bool(self._serving)

    async def poll(self) -> bool:
        """Claim endpoints for the free slots; False if nobody is to be told anything."""
        free = self._slots - len(self._serving)
        if free <= 0:
            return True
        async with self._transaction() as session:
            is_needed = await any_endpoint_enabled(session)
            claimed = await claim_endpoints(session, free) if is_needed else []
        for endpoint in claimed:
            task = asyncio.create_task(self._serve(endpoint), name=f"webhook {endpoint.id}")
            self._serving[task] = endpoint
            task.add_done_callback(self._serving.pop)
        return is_needed

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

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncSession]:
        """A transaction on the only connection that deliveries use at a time."""
        async with self._connection, get_background_session() as session, session.begin():
            yield session

    async def _serve(self, endpoint: ClaimedEndpoint) -> None:
        """Deliver what follows the position of an endpoint; an error ends its turn."""
        try:
            async with open_sender(
                endpoint, self._settings, self._policy, self._attempt_seconds
            ) as sender:
                await self._deliver(endpoint, sender)
        except DatabaseError as error:
            # The lease ends by itself; a message that was sent meanwhile is sent again.
            log.warning("webhook_interrupted", webhook_id=str(endpoint.id), reason=error.code)
        except Exception:
            log.exception("webhook_failed", webhook_id=str(endpoint.id))

    async def _deliver(self, endpoint: ClaimedEndpoint, sender: Sender) -> None:
        """Deliver one message after the other, until one fails, none is left or the turn ends."""
        for _ in range(BATCHES_PER_TURN):
            async with self._transaction() as session:
                head = await read_head(session)
                _warn_of_lost_messages(endpoint, head)
                upcoming = await next_messages(session, _filter_of(endpoint), head)
                if not upcoming.places:
                    at_head = upcoming.upper >= head.seq
                    is_ours = await pass_numbers(
                        session, endpoint, upcoming.upper, keep_lease=not at_head
                    )
                    if at_head or not is_ours:
                        return
                    endpoint = _moved(endpoint, upcoming.upper, LAST_RANK)
            for place in upcoming.places:
                moved = await self._deliver_one(endpoint, place, head.feed_id, sender)
                if moved is None:
                    return
                endpoint = moved
        async with self._transaction() as session:
            await release_endpoints(session, [endpoint])

    async def _deliver_one(
        self, endpoint: ClaimedEndpoint, place: MessagePlace, feed_id: UUID, sender: Sender
    ) -> ClaimedEndpoint | None:
        """Deliver a message; the endpoint with its new position, None if its turn ends."""
        async with self._transaction() as session:
            facts = await read_message(session, place)
        if facts is None:
            return _moved(endpoint, place.seq, place.rank)
        message = feed_message(facts, feed_id, self._settings.public_url)
        return await self._record(endpoint, message, await sender.send(message))

    async def _record(
        self, endpoint: ClaimedEndpoint, message: Message, attempt: Attempt
    ) -> ClaimedEndpoint | None:
        """Record an attempt; the endpoint with its new position, None if its turn ends."""
        outcome = "delivered" if attempt.delivered else "failed"
        meters.webhook_attempts[outcome] += 1
        delivery = delivery_of(message, attempt, endpoint.failures + 1)
        if attempt.delivered:
            async with self._transaction() as session:
                is_ours = await record_delivered(session, endpoint, delivery, message.rank)
            return _moved(endpoint, message.seq or 0, message.rank) if is_ours else None
        verdict = judge_failure(attempt, endpoint.failures)
        async with self._transaction() as session:
            await record_failed(
                session,
                endpoint,
                delivery,
                retry_seconds=verdict.retry_seconds,
                disable=verdict.disable,
            )
        log.warning(
            "webhook_disabled" if verdict.disable else "webhook_not_delivered",
            webhook_id=str(endpoint.id),
            message_id=message.id,
            attempt=delivery.attempt,
            http_status=attempt.status,
            error_code=attempt.error_code,
        )
        return None


def _filter_of(endpoint: ClaimedEndpoint) -> MessageFilter:
    """Which messages an endpoint gets next."""
    return MessageFilter(
        endpoint.types, endpoint.domains, endpoint.position, endpoint.position_rank
    )


def _moved(endpoint: ClaimedEndpoint, seq: int, rank: int) -> ClaimedEndpoint:
    """An endpoint behind a message that was delivered or passed."""
    return replace(endpoint, position=seq, position_rank=rank, failures=0)


def _warn_of_lost_messages(endpoint: ClaimedEndpoint, head: FeedHeadView) -> None:
    """Log that events were removed from the feed before an endpoint was told of them."""
    if endpoint.position < head.retained_from:
        log.warning(
            "webhook_messages_lost",
            webhook_id=str(endpoint.id),
            after_seq=endpoint.position,
            retained_from=head.retained_from,
        )
