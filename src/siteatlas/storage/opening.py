"""Opening the database of a process, wherever it is, and leaving it tidily."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from siteatlas.settings import Settings
from siteatlas.storage.embedded import EmbeddedServer
from siteatlas.storage.schema import require_schema, upgrade_schema
from siteatlas.storage.session import Database, bind_database, create_database


@asynccontextmanager
async def open_storage(
    settings: Settings, *, announce: Callable[[str], None], check_schema: bool = True
) -> AsyncIterator[Database]:
    """Bind the database that the settings name, or the embedded one, to this process.

    The embedded server's schema is brought up to date; elsewhere an outdated one is refused.
    """
    if settings.database_url is None:
        async with _embedded(settings, announce) as database:
            yield database
        return
    async with _opened(settings, settings.database_url.get_secret_value(), True) as database:
        if check_schema:
            await require_schema(database.engine)
        yield database


@asynccontextmanager
async def _embedded(settings: Settings, announce: Callable[[str], None]) -> AsyncIterator[Database]:
    server = EmbeddedServer(settings.data_dir, announce=announce)
    try:
        url = await asyncio.to_thread(server.acquire)
        async with _opened(settings, url, False) as database:
            await upgrade_schema(database.engine)
            yield database
    finally:
        await asyncio.to_thread(server.release)


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
