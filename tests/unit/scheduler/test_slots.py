"""Slots: a job that is claimed anew while its old holder winds down takes a slot of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from siteatlas.queue.claims import Claim
from siteatlas.scheduler.slots import RunningJob, Slots


def claim(fence: int) -> Claim:
    return Claim(
        id=1,
        job_id=uuid4(),
        fence=fence,
        attempt=1,
        max_attempts=5,
        domain="example.com",
        domain_id=None,
        base_url="example.com",
        document=None,
        max_pages=None,
        created_by=uuid4(),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        snoozes=0,
    )


async def test_the_old_holder_of_a_job_frees_only_its_own_slot():
    slots = Slots(4)
    old, new = RunningJob(claim(1)), RunningJob(claim(2))
    slots.add(old)
    slots.add(new)
    slots.remove(old)
    assert (slots.jobs(), slots.free) == ([new], 3)
    assert not await slots.wait_idle(0.01)


async def test_slots_are_idle_when_the_last_job_has_left():
    slots = Slots(1)
    job = RunningJob(claim(1))
    slots.add(job)
    slots.remove(job)
    assert await slots.wait_idle(0.01)
