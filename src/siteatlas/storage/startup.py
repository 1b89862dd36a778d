"""Opens the database of a process, configured or embedded, and closes it cleanly.

A server that is starting, recovering or out of connections is waited for; one that refuses is not.
The embedded server is restarted if it died, by any process that uses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from siteatlas.aio import background_task
from siteatlas.errors import (
    DatabaseConnectionsExhausted,
    DatabaseUnavailable,
    EmbeddedServerError,
    EmbeddedServerUnavailable,
)
from siteatlas.logs import get_logger
from siteatlas.settings import Settings, load_settings
from siteatlas.storage.embedded.server import EmbeddedServer, announce_to_log
from siteatlas.storage.engine import located_faults, reason_of, server_of
from siteatlas.storage.schema import require_schema, upgrade_schema
from siteatlas.storage.session import REQUEST_LIMITS, Database, bind_database, create_database

LOOK_SECONDS = 2.0

log = get_logger("storage")


@asynccontextmanager
async def open_storage(
    settings: Settings | None = None,
    *,
    announce: Callable[[str], None] | None = None,
    check_schema: bool = True,
    go_on_waiting: Callable[[], bool] | None = None,
    usual_limits: Mapping[str, str] = REQUEST_LIMITS,
) -> AsyncIterator[Database]:
    """Bind the configured database, or the embedded one, to this process.

    Without `settings` they are read here; without `announce` a start of the embedded server is
    only logged. The embedded server's schema is brought up to date; elsewhere an outdated one is
    refused. With `go_on_waiting`, wait for a database that does not respond yet while it returns
    true, up to the time in the settings. `usual_limits` are those of most transactions.
    """
    settings = settings or load_settings().settings
    if settings.database_url is None:
        async with _embedded_database(
            settings, announce or announce_to_log, go_on_waiting, usual_limits
        ) as database:
            yield database
        return
    url = settings.database_url.get_secret_value()
    wait = DatabaseWait(server_of(url), settings.database_wait_seconds if go_on_waiting else 0)
    with located_faults(url):
        async with _open_database(settings, url, True, usual_limits) as database:
            if check_schema:
                await wait.until_answered(lambda: require_schema(database.engine), go_on_waiting)
            yield database


@asynccontextmanager
async def _embedded_database(
    settings: Settings,
    announce: Callable[[str], None],
    go_on_waiting: Callable[[], bool] | None,
    usual_limits: Mapping[str, str],
) -> AsyncIterator[Database]:
    server = EmbeddedServer(settings.data_dir, announce=announce, user_name=settings.server_user)
    wait = DatabaseWait(str(server.data_dir), settings.database_wait_seconds)
    try:
        url = await asyncio.to_thread(server.acquire)
        async with (
            _open_database(settings, url, False, usual_limits) as database,
            background_task(_revive_when_dead(server), essential=True),
        ):
            await wait.until_answered(lambda: upgrade_schema(database.engine), go_on_waiting)
            yield database
    except DatabaseUnavailable as error:
        if type(error) is not DatabaseUnavailable:
            raise
        raise EmbeddedServerUnavailable(
            f"The embedded PostgreSQL in {server.data_dir} does not respond: {reason_of(error)}."
        ) from error
    finally:
        await asyncio.to_thread(server.release)


class DatabaseWait:
    """A limited wait for a database that does not respond yet, with a log message at intervals."""

    def __init__(self, where: str, seconds: float) -> None:
        self._where = where
        self._began = time.monotonic()
        self._seconds = seconds
        self._next_message = 0.0
        self._pause = 1.0

    async def until_answered(
        self, ask: Callable[[], Awaitable[None]], go_on: Callable[[], bool] | None
    ) -> None:
        """Try until the server responds or refuses; raise the last error at the deadline."""
        while True:
            try:
                return await ask()
            except DatabaseUnavailable as error:
                # Starting, recovering or out of connections; a refusal would be permanent.
                if (
                    type(error) not in {DatabaseUnavailable, DatabaseConnectionsExhausted}
                    or self._is_over()
                    or not (go_on is None or go_on())
                ):
                    raise
                self._log(error)
            await asyncio.sleep(self._pause)

    def _is_over(self) -> bool:
        """Whether the database must respond now: there is no time for another attempt."""
        return time.monotonic() - self._began + self._pause > self._seconds

    def _log(self, error: DatabaseUnavailable) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._next_message:
            self._next_message = waited + 5.0
            log.warning("waiting_for_database", database=self._where, reason=reason_of(error))


async def _revive_when_dead(server: EmbeddedServer) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            if await asyncio.to_thread(server.revive):
                log.warning("embedded_server_restarted")
        except EmbeddedServerError as error:
            log.warning("embedded_server_lost", reason=error.message)
            await asyncio.sleep(30.0)


@asynccontextmanager
async def _open_database(
    settings: Settings, url: str, behind_pooler: bool, usual_limits: Mapping[str, str]
) -> AsyncIterator[Database]:
    database = create_database(
        url,
        pool_size=settings.pool_size,
        pool_overflow=settings.pool_overflow,
        behind_pooler=behind_pooler,
        usual_limits=usual_limits,
    )
    bind_database(database)
    try:
        yield database
    finally:
        bind_database(None)
        await database.close()
