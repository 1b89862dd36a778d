"""Terminates stalled transactions of workers that froze or disappeared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger
from siteatlas.storage.session import AsyncSession, get_background_session
from siteatlas.storage.stalled_copies import terminate_stalled_copies

log = get_logger("processor")


async def terminate_stalled_writers(
    open_session: Callable[[], AbstractAsyncContextManager[AsyncSession]] = get_background_session,
) -> int:
    """Terminate COPY statements whose client is gone, in a separate transaction; return how many.

    For moments at which there may be one: after a rescue, and when a write met a lock. What goes
    wrong here is only logged, because callers have other work to do.
    """
    try:
        async with open_session() as session, session.begin():
            ended = await terminate_stalled_copies(session)
    except DatabaseError as error:
        log.warning("stalled_copies_not_terminated", reason=error.code)
        return 0
    if ended:
        log.warning("stalled_copies_terminated", count=ended)
    return ended
