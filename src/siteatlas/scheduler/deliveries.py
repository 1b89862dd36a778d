"""When webhook messages are delivered: the loop around the dispatcher of `siteatlas.notify`.

It polls for new publications, about once a second: publications do not know of it. While
endpoints wait for a slot, it looks whenever one becomes free.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.dispatcher import Dispatcher, PollResult
from siteatlas.scheduler.outages import ResilientLoop
from siteatlas.settings import Settings

POLL_SECONDS = 1.0
# Slots that become free within this time are filled by one poll.
REFILL_SECONDS = 0.02
# Longer while there is no webhook: the first message of one that another process created may be
# that late.
IDLE_SECONDS = 15.0


class DeliveryLoop:
    """One per process, next to the consumer."""

    def __init__(self, settings: Settings, policy: EgressPolicy) -> None:
        self._dispatcher = Dispatcher(settings, policy)
        self._look_requested = asyncio.Event()

    def look(self) -> None:
        """Look for messages soon: a webhook was created or changed in this process."""
        self._look_requested.set()

    async def run(self) -> None:
        """Deliver until cancelled, then return the endpoints that this process holds."""
        resilient_loop = ResilientLoop("webhooks")
        try:
            while True:
                result = PollResult.CAUGHT_UP
                self._look_requested.clear()
                async with resilient_loop.iteration():
                    result = await self._dispatcher.poll()
                await self._pause(result)
        finally:
            await self._dispatcher.stop()

    async def _pause(self, result: PollResult) -> None:
        """Wait until another poll is worth its while."""
        if result is PollResult.SLOTS_TAKEN:
            await self._dispatcher.wait_for_slot()
            await asyncio.sleep(REFILL_SECONDS)
            return
        await asyncio.sleep(POLL_SECONDS)
        if result is PollResult.NO_WEBHOOK:
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._look_requested.wait()
