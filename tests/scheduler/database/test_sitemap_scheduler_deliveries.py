"""The loop around deliveries: how soon waiting endpoints get a turn, and what an idle loop costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import event

from siteatlas.notify.delivery import SLOTS
from siteatlas.scheduler import sitemap_scheduler as deliveries
from siteatlas.scheduler.sitemap_scheduler import DeliveryLoop
from siteatlas.settings import Settings
from siteatlas.storage.models import Domain
from siteatlas.storage.session import Database
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain
from tests.fixtures.waiting import wait_until
from tests.fixtures.webhooks import Receiver, add_endpoints, publish


@pytest_asyncio.fixture
async def receiver(database: Database) -> AsyncIterator[Receiver]:
    async with Receiver() as running:
        yield running


@pytest_asyncio.fixture
async def domain(database: Database) -> Domain:
    async with transaction() as session:
        return await add_domain(session)


@asynccontextmanager
async def delivering(receiver: Receiver) -> AsyncIterator[None]:
    """Deliveries run while the block runs."""
    loop = DeliveryLoop(Settings(), receiver.policy)
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def counted_claims(database: Database) -> Iterator[list[str]]:
    """The statements that claim endpoints while the block runs."""
    sent: list[str] = []

    def note(*arguments: Any) -> None:
        if "FOR UPDATE SKIP LOCKED" in arguments[2]:
            sent.append(arguments[2])

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    yield sent
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)


async def test_endpoints_that_wait_get_a_turn_as_soon_as_a_slot_is_free(
    receiver: Receiver, domain: Domain, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(deliveries, "POLL_SECONDS", 60.0)
    await add_endpoints(receiver, 2 * SLOTS + 1)
    number = await publish(domain)
    async with delivering(receiver):
        await wait_until(lambda: len(receiver.seqs) > 2 * SLOTS, seconds=20)
    assert receiver.seqs == [number] * (2 * SLOTS + 1)


async def test_a_loop_without_free_slots_waits_for_one(
    receiver: Receiver, domain: Domain, database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(deliveries, "POLL_SECONDS", 60.0)
    await add_endpoints(receiver, SLOTS + 1)
    await publish(domain)
    receiver.gate.clear()
    with counted_claims(database) as claims:
        async with delivering(receiver):
            await wait_until(lambda: len(receiver.messages) == SLOTS)
            await asyncio.sleep(0.3)
            assert len(claims) == 1
            receiver.gate.set()
            await wait_until(lambda: len(receiver.messages) == SLOTS + 1)


async def test_a_loop_that_has_nothing_to_deliver_does_not_look_again_at_once(
    receiver: Receiver, domain: Domain, database: Database
):
    await add_endpoints(receiver, SLOTS)
    await publish(domain)
    async with delivering(receiver):
        await wait_until(lambda: len(receiver.messages) == SLOTS)
        await asyncio.sleep(deliveries.POLL_SECONDS)
        with counted_claims(database) as claims:
            await asyncio.sleep(2 * deliveries.POLL_SECONDS)
    assert 1 <= len(claims) <= 3
