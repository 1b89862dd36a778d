"""What every COPY statement needs: a time limit, an end with the connection, our own errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from siteatlas.errors import DatabaseError, DatabaseUnavailable
from siteatlas.storage.engine import meaning_of_state


@asynccontextmanager
async def copy_time_limit(driver: Any, seconds: float) -> AsyncIterator[None]:
    """The time limit of a COPY statement: TimeoutError, at once if the connection is lost.

    The driver itself would keep waiting for buffer space.
    """
    loop = asyncio.get_running_loop()
    under_way = True
    async with asyncio.timeout(seconds) as limit:

        def expire_copy(_driver: Any) -> None:
            # The call comes in a later iteration of the loop: the copy may have ended meanwhile.
            if under_way and not limit.expired():
                limit.reschedule(loop.time())

        driver.add_termination_listener(expire_copy)
        try:
            yield
        finally:
            under_way = False
            driver.remove_termination_listener(expire_copy)


def copy_fault(error: BaseException, driver: Any) -> DatabaseError | None:
    """Our own error for what ended a copy; None for a bug of ours and for a cancel."""
    if isinstance(error, asyncpg.PostgresError):
        return meaning_of_state(error.sqlstate or "")
    lost = isinstance(error, (TimeoutError, OSError, asyncpg.InternalClientError))
    lost = lost or (isinstance(error, asyncpg.InterfaceError) and driver.is_closed())
    return DatabaseUnavailable() if lost else None


@contextmanager
def translated_copy_faults(driver: Any) -> Iterator[None]:
    """Raise our own errors for what ends a copy."""
    try:
        yield
    except Exception as error:
        own = copy_fault(error, driver)
        if own is None:
            raise
        raise own from error
