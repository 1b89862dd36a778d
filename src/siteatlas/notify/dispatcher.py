"""Delivers messages: claims endpoints, and runs a turn of each of them in one of its slots.

The database decides who delivers to an endpoint, so any number of processes may run a dispatcher.
Endpoints have separate slots here, and share one database connection, so that they never hold
up a scan.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum, auto

from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger
from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.schedule import ATTEMPT_SECONDS
from siteatlas.notify.sending import Sender, open_sender
from siteatlas.notify.turns import TURN_SECONDS, Turn
from siteatlas.settings import Settings
from siteatlas.storage.session import AsyncSession, get_background_session
from siteatlas.storage.statements.webhook_deliveries import (
    ClaimedEndpoint,
    any_endpoint_enabled,
    claim_endpoints,
    release_endpoints,
)

SLOTS = 16

log = get_logger("notify")


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
        turn_seconds: float = TURN_SECONDS,
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
        """Start the turn of an endpoint in a free slot."""
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
        """The connection to an endpoint, with the settings of this process."""
        return open_sender(endpoint, self._settings, self._policy, self._attempt_seconds)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncSession]:
        """A transaction on the only connection that deliveries use at a time."""
        async with self._connection, get_background_session() as session, session.begin():
            yield session
