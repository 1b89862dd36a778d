"""Retries transactions that failed because of a deadlock, a serialization failure or a lock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from siteatlas.errors import DatabaseBusy

TRIES = 4
FIRST_PAUSE = 0.02

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
Transaction = Callable[P, Coroutine[Any, Any, ResultT]]


@overload
def retry_when_busy(transaction: Transaction[P, ResultT], /) -> Transaction[P, ResultT]: ...


@overload
def retry_when_busy(
    *, before_retry: Callable[[], Awaitable[object]]
) -> Callable[[Transaction[P, ResultT]], Transaction[P, ResultT]]: ...


def retry_when_busy(
    transaction: Transaction[P, ResultT] | None = None,
    /,
    *,
    before_retry: Callable[[], Awaitable[object]] | None = None,
) -> Transaction[P, ResultT] | Callable[[Transaction[P, ResultT]], Transaction[P, ResultT]]:
    """Decorate a function that is one transaction: run it again from its start when it was busy.

    The function opens its own session, so that nothing of a lost attempt is left in it. Use it as
    `@retry_when_busy`, or as `@retry_when_busy(before_retry=...)` to clear the way first.
    """

    def decorate(function: Transaction[P, ResultT]) -> Transaction[P, ResultT]:
        """Wrap one transaction function with retries."""

        @wraps(function)
        async def retried(*args: P.args, **kwargs: P.kwargs) -> ResultT:
            """Run the transaction; retry it with increasing pauses while the database is busy."""
            for attempt in range(1, TRIES):
                try:
                    return await function(*args, **kwargs)
                except DatabaseBusy:
                    if before_retry is not None:
                        await before_retry()
                    await asyncio.sleep(random.uniform(0.5, 1) * FIRST_PAUSE * 2**attempt)
            return await function(*args, **kwargs)

        return retried

    return decorate if transaction is None else decorate(transaction)
