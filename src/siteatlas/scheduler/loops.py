"""The endless loops of a process: each must run until the process is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from siteatlas.errors import SchedulerEnded


async def run_until(stop: asyncio.Event, loops: Collection[asyncio.Task[None]]) -> None:
    """Wait until `stop` is set; SchedulerEnded when one of the loops ends before."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *loops], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if not stop.is_set():
        raise SchedulerEnded
