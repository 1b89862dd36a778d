"""A job is parked when it only waits for a while, and comes back before it sends anything."""

from __future__ import annotations

import asyncio

import pytest

from siteatlas.net.client import current_waits, observe_waits
from siteatlas.scheduler import slots as parking
from siteatlas.scheduler.slots import Parking, RunningJob, Slots
from tests.scheduler.test_slots import claim


async def started() -> tuple[Slots, RunningJob, Parking]:
    slots, job = Slots(2), RunningJob(claim())
    slots.add(job)
    return slots, job, Parking(slots, job)


async def test_a_job_that_waits_for_a_second_or_more_is_parked_until_it_goes_on():
    slots, job, parked = await started()
    with observe_waits(parked.waits):
        waits = current_waits()
        with waits.request(), waits.wait(30.0):
            assert slots.is_parked(job)
        await waits.resume_requests()
    assert not slots.is_parked(job)


async def test_a_short_wait_keeps_the_slot():
    slots, job, parked = await started()
    with observe_waits(parked.waits), current_waits().request(), current_waits().wait(0.5):
        assert not slots.is_parked(job)


async def test_a_wait_without_a_known_end_is_parked_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parking, "MIN_WAIT_SECONDS", 0.02)
    slots, job, parked = await started()
    with observe_waits(parked.waits), current_waits().request(), current_waits().wait():
        assert not slots.is_parked(job)
        await asyncio.sleep(0.05)
        assert slots.is_parked(job)


async def test_nothing_is_parked_after_the_end_of_the_job(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parking, "MIN_WAIT_SECONDS", 0.02)
    slots, job, parked = await started()
    with observe_waits(parked.waits), current_waits().request(), current_waits().wait():
        parked.stop()
    slots.remove(job)
    await asyncio.sleep(0.05)
    assert slots.jobs() == []


async def test_a_job_parked_again_before_it_could_go_on_waits_for_a_slot_again():
    slots, job, parked = await started()
    slots.park(job)
    others = [RunningJob(claim()) for _ in range(2)]
    for other in others:
        slots.add(other)
    resuming = asyncio.create_task(parked._resume())
    await asyncio.sleep(0)
    slots.remove(others[0])
    slots.park(job)  # the timer of another request
    third = RunningJob(claim())
    slots._running.add(third)
    await asyncio.sleep(0.01)
    assert (resuming.done(), slots.is_parked(job)) == (False, True)
    slots.remove(third)
    await asyncio.wait_for(resuming, 1)
    assert not slots.is_parked(job)
