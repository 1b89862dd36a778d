"""Opens the database of a command; a separate module so that `scan` starts without it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from siteatlas.cli.terminal.output import print_message
from siteatlas.queue.views import any_worker_alive
from siteatlas.settings import Settings
from siteatlas.storage.session import REQUEST_LIMITS, Database, get_session
from siteatlas.storage.startup import open_storage

NO_WORKER = "No worker is running. Start one: siteatlas serve"


@asynccontextmanager
async def opened(
    settings: Settings,
    *,
    go_on_waiting: Callable[[], bool] | None = None,
    usual_limits: Mapping[str, str] = REQUEST_LIMITS,
) -> AsyncIterator[Database]:
    """The database of the settings, bound to this process while the command runs.

    A database that does not respond yet is waited for while `go_on_waiting` returns True.
    """
    async with open_storage(
        settings,
        announce=print_message,
        go_on_waiting=go_on_waiting,
        usual_limits=usual_limits,
    ) as database:
        yield database


async def warn_without_worker() -> None:
    """Say so if nobody runs the jobs that a command queued or waits for."""
    async with get_session() as session, session.begin():
        alive = await any_worker_alive(session)
    if not alive:
        print_message(NO_WORKER)
