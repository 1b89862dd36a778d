"""What a heartbeat locks, and when: a worker may freeze in the middle of it."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select, update

from siteatlas.net.egress import EgressPolicy
from siteatlas.scheduler.consumer import Consumer
from siteatlas.scheduler.slots import RunningJob
from siteatlas.settings import Settings
from siteatlas.storage.models import Job, Worker
from siteatlas.storage.session import get_background_session
from tests.fixtures.queue import submit, take_one

pytestmark = pytest.mark.usefixtures("database")


async def test_no_job_is_locked_while_a_heartbeat_has_something_else_to_do() -> None:
    consumer = Consumer(Settings(), EgressPolicy.from_text(""))
    await submit("example.com")
    claim = await take_one(consumer.worker_id)
    consumer._slots.add(RunningJob(claim))
    await consumer.heartbeat()
    async with get_background_session() as other, other.begin():
        await other.execute(update(Worker).values(running=7))
        beat = asyncio.create_task(consumer.heartbeat())
        await asyncio.sleep(0.5)
        assert not beat.done()
        async with get_background_session() as rescuer, rescuer.begin():
            free = select(Job.id).where(Job.id == claim.id).with_for_update(skip_locked=True)
            assert (await rescuer.scalars(free)).all() == [claim.id]
    await beat
