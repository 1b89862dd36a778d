"""What the tests of the change feed share: a database, and a client of the API on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio

from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.session import Database


@pytest_asyncio.fixture
async def client(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """A program that speaks to the application, which runs no jobs."""
    app = create_app(Settings(), run_scheduler=False, database=database)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as opened:
        yield opened
