"""Repeating a transaction that lost against another one: deadlock, serialization, lock wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from siteatlas.errors import DatabaseBusy

TRIES = 4
FIRST_PAUSE = 0.02

ResultT = TypeVar("ResultT")


async def retry_when_busy(
    transaction: Callable[[], Awaitable[ResultT]],
    *,
    clear_way: Callable[[], Awaitable[object]] | None = None,
) -> ResultT:
    """Run a whole transaction, again from its start when the database chose another one.

    `transaction` opens its own session, so that nothing of a lost try is left in it. `clear_way`
    is called before each repetition.
    """
    for attempt in range(1, TRIES):
        try:
            return await transaction()
        except DatabaseBusy:
            if clear_way is not None:
                await clear_way()
            await asyncio.sleep(random.uniform(0.5, 1) * FIRST_PAUSE * 2**attempt)
    return await transaction()
