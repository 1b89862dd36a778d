"""When webhook messages are delivered: the loop around the dispatcher of `siteatlas.notify`.

It looks for new publications by itself, about once a second: publications do not know of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.dispatcher import Dispatcher
from siteatlas.scheduler.outages import ResilientLoop
from siteatlas.settings import Settings

POLL_SECONDS = 1.0
# Longer while there is no webhook: the first message of one that another process created may be
# that late.
IDLE_SECONDS = 15.0


class DeliveryLoop:
    """One per process, beside the consumer."""

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
                is_needed = False
                self._look_requested.clear()
                async with resilient_loop.iteration():
                    is_needed = await self._dispatcher.poll()
                await asyncio.sleep(POLL_SECONDS)
                if not is_needed:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(IDLE_SECONDS):
                            await self._look_requested.wait()
        finally:
            await self._dispatcher.stop()
