"""A task that runs beside a block and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def background_task(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run `work` while the block runs; what becomes of it is its own business."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
