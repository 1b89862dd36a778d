"""The turn of an endpoint: when it ends, and what it leaves behind."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import text

from siteatlas.storage.models import Domain
from tests.fixtures.database import transaction
from tests.fixtures.waiting import wait_until
from tests.fixtures.webhooks import (
    Receiver,
    add_endpoint,
    add_endpoints,
    deliver_all,
    deliveries_of,
    dispatcher_for,
    publish,
    set_endpoint,
    take_over,
    webhook_view,
)


async def test_an_endpoint_returns_its_slot_when_its_time_is_up(receiver: Receiver, domain: Domain):
    await add_endpoints(receiver, 2)
    for _ in range(3):
        await publish(domain)
    dispatcher = dispatcher_for(receiver, slots=1, turn_seconds=0)
    for _ in range(4):
        await deliver_all(dispatcher)
    assert receiver.seqs == [1, 1, 2, 2]


async def test_passing_numbers_takes_turns_too(
    receiver: Receiver, domain: Domain, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("siteatlas.catalog.webhooks.MAX_NUMBERS", 2)
    created = await add_endpoint(receiver, types=["scan.failed"])
    for _ in range(5):
        await publish(domain)
    dispatcher = dispatcher_for(receiver, turn_seconds=0)
    await deliver_all(dispatcher)
    assert (await webhook_view(created.id)).delivered_seq == 2
    await deliver_all(dispatcher)
    await deliver_all(dispatcher)
    assert (await webhook_view(created.id)).delivered_seq == 5


async def test_a_connection_is_opened_only_for_a_message(receiver: Receiver, domain: Domain):
    created = await add_endpoint(receiver, types=["scan.failed"])
    await set_endpoint(created.id, url="no address")
    await publish(domain)
    await deliver_all(dispatcher_for(receiver))
    view = await webhook_view(created.id)
    assert (view.delivered_seq, view.failures) == (1, 0)


async def has_attempts(ident: UUID, count: int) -> bool:
    return len(await deliveries_of(ident)) == count


async def test_a_process_that_lost_an_endpoint_sends_nothing_more(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    for _ in range(2):
        await publish(domain)
    receiver.gate.clear()
    stalled = dispatcher_for(receiver)
    await stalled.poll()
    await wait_until(lambda: receiver.seqs == [1])
    async with transaction() as session:
        await session.execute(text("LOCK TABLE scans"))
        receiver.gate.set()
        await wait_until(lambda: has_attempts(created.id, 1))
        await take_over()
    await wait_until(lambda: not stalled.is_busy)
    assert receiver.seqs == [1]
    assert await has_attempts(created.id, 1)
