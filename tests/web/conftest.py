"""A client of the application that is like a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio
from fastapi import FastAPI

from tests.fixtures.application import BASE_URL

ACCEPT = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest_asyncio.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A browser without JavaScript."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=ACCEPT) as opened:
        yield opened


@pytest_asyncio.fixture
async def cut_off_client(cut_off_app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """The same, for an application whose database cannot be reached."""
    transport = httpx.ASGITransport(app=cut_off_app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=ACCEPT) as opened:
        yield opened
