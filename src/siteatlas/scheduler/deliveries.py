"""When webhook messages are delivered: the loop around the dispatcher of `siteatlas.notify`.

It looks for new publications by itself, about once a second: publications do not know of it.
"""

from __future__ import annotations

import asyncio

from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.dispatcher import Dispatcher
from siteatlas.scheduler.outages import ResilientLoop
from siteatlas.settings import Settings

POLL_SECONDS = 1.0
# While nobody is to be told anything.
IDLE_SECONDS = 5.0


class DeliveryLoop:
    """One per process, beside the consumer."""

    def __init__(self, settings: Settings, policy: EgressPolicy) -> None:
        self._dispatcher = Dispatcher(settings, policy)

    async def run(self) -> None:
        """Deliver until cancelled, then return the endpoints that this process holds."""
        resilient_loop = ResilientLoop("webhooks")
        try:
            while True:
                pause = IDLE_SECONDS
                async with resilient_loop.iteration():
                    pause = POLL_SECONDS if await self._dispatcher.poll() else IDLE_SECONDS
                await asyncio.sleep(pause)
        finally:
            await self._dispatcher.stop()
