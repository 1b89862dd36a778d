"""Webhooks while receivers restart and processes die: every scan is delivered, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from siteatlas.storage.models import Domain
from siteatlas.storage.session import Database
from tests.fixtures.commands import Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain
from tests.fixtures.waiting import wait_until
from tests.fixtures.webhooks import Receiver, add_endpoint, publish, webhook_view

pytestmark = pytest.mark.slow

START_SECONDS = 40
# The lease of the dead process, the delays of two retries, and slow machines.
END_SECONDS = 120


@pytest_asyncio.fixture
async def receiver(database: Database) -> AsyncIterator[Receiver]:
    async with Receiver() as running:
        yield running


@pytest.fixture
def machine(receiver: Receiver, database_url: str, tmp_path: Path) -> Machine:
    """A machine whose workers are quiet: nobody reads what they print, and a full pipe stops them."""
    settings = {"SITEATLAS_EGRESS_ALLOW": receiver.host_port, "SITEATLAS_LOG_LEVEL": "error"}
    return Machine(tmp_path, {"DATABASE_URL": database_url} | settings)


async def publish_some(domain: Domain, count: int) -> list[int]:
    numbers = []
    for _ in range(count):
        numbers.append(await publish(domain))
        await asyncio.sleep(0.05)
    return numbers


async def restart(receiver: Receiver) -> None:
    """The receiver is away while messages are due."""
    await receiver.stop()
    await asyncio.sleep(2)
    await receiver.start()


@pytest.mark.timeout(3 * END_SECONDS)
async def test_every_scan_is_delivered_in_order_despite_restarts_and_a_kill(
    machine: Machine, receiver: Receiver
):
    async with transaction() as session:
        domain = await add_domain(session)
    created = await add_endpoint(receiver)
    with ExitStack() as processes:
        dying = processes.enter_context(machine.process("worker"))
        numbers = await publish_some(domain, 10)
        await wait_until(lambda: bool(receiver.messages), seconds=START_SECONDS)
        publishing = asyncio.create_task(publish_some(domain, 60))
        await restart(receiver)
        numbers += await publishing
        await wait_until(lambda: receiver.seqs[-1:] == numbers[-1:], seconds=END_SECONDS)
        receiver.hold = True
        before = len(receiver.messages)
        numbers += await publish_some(domain, 5)
        await wait_until(lambda: len(receiver.messages) > before, seconds=START_SECONDS)
        processes.enter_context(machine.process("worker"))
        dying.kill()
        receiver.hold = False
        publishing = asyncio.create_task(publish_some(domain, 60))
        await restart(receiver)
        numbers += await publishing
        await wait_until(lambda: receiver.seqs[-1:] == numbers[-1:], seconds=END_SECONDS)
        await wait_until(lambda: is_up_to_date(created.id), seconds=END_SECONDS)
    delivered = receiver.seqs
    assert sorted(set(delivered)) == numbers
    assert all(one <= other for one, other in pairwise(delivered)), "a message came too late"
    assert len(delivered) > len(numbers), "the message of the dead process was not sent again"
    first_ids = {received.seq: received.id for received in receiver.messages}
    assert all(received.id == first_ids[received.seq] for received in receiver.messages)


async def is_up_to_date(ident: UUID) -> bool:
    view = await webhook_view(ident)
    return view.delivered_seq == view.head_seq
