"""Opening the database of a process, wherever it is, and leaving it tidily."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from siteatlas.beside import beside
from siteatlas.errors import EmbeddedServerError
from siteatlas.logs import get_logger
from siteatlas.settings import Settings, load_settings
from siteatlas.storage.embedded import EmbeddedServer, announce_to_log
from siteatlas.storage.faults import located_faults
from siteatlas.storage.schema import require_schema, upgrade_schema
from siteatlas.storage.session import Database, bind_database, create_database

LOOK_SECONDS = 2.0
REST_SECONDS = 30.0

log = get_logger("storage")


@asynccontextmanager
async def open_storage(
    settings: Settings | None = None,
    *,
    announce: Callable[[str], None] | None = None,
    check_schema: bool = True,
) -> AsyncIterator[Database]:
    """Bind the database that the settings name, or the embedded one, to this process.

    Without `settings` they are read here; without `announce` a start of the embedded server is
    only logged. The embedded server's schema is brought up to date; elsewhere an outdated one is
    refused.
    """
    settings = settings or load_settings().settings
    if settings.database_url is None:
        async with _embedded(settings, announce or announce_to_log) as database:
            yield database
        return
    url = settings.database_url.get_secret_value()
    with located_faults(url):
        async with _opened(settings, url, True) as database:
            if check_schema:
                await require_schema(database.engine)
            yield database


@asynccontextmanager
async def _embedded(settings: Settings, announce: Callable[[str], None]) -> AsyncIterator[Database]:
    server = EmbeddedServer(settings.data_dir, announce=announce, user_name=settings.server_user)
    try:
        url = await asyncio.to_thread(server.acquire)
        async with _opened(settings, url, False) as database, beside(_revive_when_dead(server)):
            await upgrade_schema(database.engine)
            yield database
    finally:
        await asyncio.to_thread(server.release)


async def _revive_when_dead(server: EmbeddedServer) -> None:
    """Nobody else looks after our own server: whoever uses it starts it again when it died."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            if await asyncio.to_thread(server.revive):
                log.warning("embedded_server_revived")
        except EmbeddedServerError as error:
            log.warning("embedded_server_lost", reason=error.message)
            await asyncio.sleep(REST_SECONDS)


@asynccontextmanager
async def _opened(settings: Settings, url: str, behind_pooler: bool) -> AsyncIterator[Database]:
    database = create_database(
        url,
        pool_size=settings.pool_size,
        pool_overflow=settings.pool_overflow,
        behind_pooler=behind_pooler,
    )
    bind_database(database)
    try:
        yield database
    finally:
        bind_database(None)
        await database.close()
