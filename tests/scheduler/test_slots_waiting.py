"""A job leaves its slot when it only waits for a while, and enters one before it sends anything."""

from __future__ import annotations

import asyncio

import pytest

from siteatlas.net.client import current_waits
from siteatlas.scheduler import slots as slots_module
from siteatlas.scheduler.slots import RunningJob, Slots
from tests.scheduler.test_slots import claim


async def started() -> tuple[Slots, RunningJob]:
    slots, job = Slots(2), RunningJob(claim())
    slots.add(job)
    return slots, job


async def test_a_job_that_waits_for_a_second_or_more_has_no_slot_until_it_goes_on():
    slots, job = await started()
    with slots.left_while_waiting(job):
        waits = current_waits()
        with waits.request(), waits.wait(30.0):
            assert slots.is_waiting(job)
        await waits.resume_requests()
        assert not slots.is_waiting(job)


async def test_a_short_wait_keeps_the_slot():
    slots, job = await started()
    with slots.left_while_waiting(job), current_waits().request(), current_waits().wait(0.5):
        assert not slots.is_waiting(job)


async def test_a_wait_without_a_known_end_frees_the_slot_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(slots_module, "MIN_WAIT_SECONDS", 0.02)
    slots, job = await started()
    with slots.left_while_waiting(job), current_waits().request(), current_waits().wait():
        assert not slots.is_waiting(job)
        await asyncio.sleep(0.05)
        assert slots.is_waiting(job)


async def test_no_slot_is_left_after_the_end_of_the_job(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slots_module, "MIN_WAIT_SECONDS", 0.02)
    slots, job = await started()
    with slots.left_while_waiting(job):
        request = current_waits().request()
        request.__enter__()
        current_waits().wait().__enter__()
    await asyncio.sleep(0.05)
    assert not slots.is_waiting(job)
    slots.remove(job)
    assert slots.jobs() == []


async def test_a_job_that_leaves_again_before_it_could_go_on_waits_for_a_slot_again():
    slots, job = await started()
    slots.leave(job)
    others = [RunningJob(claim()) for _ in range(2)]
    for other in others:
        slots.add(other)
    entering = asyncio.create_task(slots.enter(job))
    await asyncio.sleep(0)
    slots.remove(others[0])
    slots.leave(job)  # the timer of another request
    third = RunningJob(claim())
    slots._running.add(third)
    await asyncio.sleep(0.01)
    assert (entering.done(), slots.is_waiting(job)) == (False, True)
    slots.remove(third)
    await asyncio.wait_for(entering, 1)
    assert not slots.is_waiting(job)
