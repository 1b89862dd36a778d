"""What the tests of the API share: a fresh database, the application on it, and a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from siteatlas.access.keys import Installation
from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.session import Database, bind_database, create_database
from tests.fixtures.database import (
    database,
    database_name,
    database_url,
    postgres_server,
    session,
)

__all__ = ["database", "database_name", "database_url", "postgres_server", "session"]

BASE_URL = "http://localhost:8000"


@pytest.fixture
def app(database: Database) -> FastAPI:
    """The application as `serve --no-scheduler` makes it."""
    return create_app(
        Settings(),
        run_scheduler=False,
        database=database,
        installation=Installation(is_closed=False),
    )


@pytest_asyncio.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A program that speaks to the application."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as opened:
        yield opened


@pytest.fixture
def cut_off_app(tmp_path: Path) -> Iterator[FastAPI]:
    """An application whose database cannot be reached: whoever needs it is answered with 503."""
    unreachable = create_database(f"postgresql://nobody@/nothing?host={tmp_path}")
    bind_database(unreachable)
    yield create_app(
        Settings(),
        run_scheduler=False,
        database=unreachable,
        installation=Installation(is_closed=False),
    )
    bind_database(None)


@pytest_asyncio.fixture
async def cut_off_client(cut_off_app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client for requests that must be answered before the database is asked."""
    transport = httpx.ASGITransport(app=cut_off_app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as opened:
        yield opened
