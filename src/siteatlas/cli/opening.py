"""The database of a command, apart from the rest so that `scan` starts without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from siteatlas.cli.output import say
from siteatlas.settings import Settings
from siteatlas.storage.opening import open_storage
from siteatlas.storage.session import Database


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Database]:
    """The database that the settings name, bound to this process while the command works."""
    async with open_storage(settings, announce=say) as database:
        yield database
