"""What the tests of deliveries share: a receiver of webhooks and a site."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from siteatlas.storage.models import Domain
from siteatlas.storage.session import Database
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain
from tests.fixtures.webhooks import Receiver


@pytest_asyncio.fixture
async def receiver(database: Database) -> AsyncIterator[Receiver]:
    """A running receiver."""
    async with Receiver() as running:
        yield running


@pytest_asyncio.fixture
async def domain(database: Database) -> Domain:
    """The site that publishes."""
    async with transaction() as session:
        return await add_domain(session)
