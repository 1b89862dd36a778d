"""Slots: who gets one, who releases it, and who comes next."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from siteatlas.queue.fence import Claim, Priority
from siteatlas.scheduler.slots import (
    MIN_STAY_SECONDS,
    WAITING_PER_SLOT,
    RunningJob,
    Slots,
    StopReason,
)


def claim(fence: int = 1, priority: Priority = Priority.INTERACTIVE) -> Claim:
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
        priority=int(priority),
    )


def batch_job(site: str | None = None, user: UUID | None = None) -> RunningJob:
    return RunningJob(claim(priority=Priority.BATCH), site=site, user=user)


def person_job(user: UUID | None = None) -> RunningJob:
    return RunningJob(claim(), user=user)


def filled(slots: Slots, count: int) -> list[RunningJob]:
    jobs = [batch_job() for _ in range(count)]
    for job in jobs:
        slots.add(job)
    return jobs


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


@pytest.mark.parametrize(("size", "reserved"), [(1, 0), (2, 1), (8, 1), (32, 4)])
async def test_some_slots_are_reserved_for_interactive_jobs(size: int, reserved: int):
    slots = Slots(size)
    filled(slots, size - reserved)
    assert (slots.free_for_background, slots.free) == (0, reserved)


async def test_a_job_that_leaves_its_slot_is_still_held():
    slots = Slots(4)
    (job,) = filled(slots, 1)
    slots.leave(job)
    assert (slots.free, slots.running, slots.jobs()) == (4, 0, [job])
    assert not await slots.wait_idle(0.01)


async def test_a_free_slot_is_reported():
    told: list[None] = []
    slots = Slots(2, lambda: told.append(None))
    (job,) = filled(slots, 1)
    slots.leave(job)
    assert told


async def test_a_job_that_never_left_its_slot_goes_on_at_once():
    slots = Slots(2)
    (job,) = filled(slots, 1)
    await asyncio.wait_for(slots.enter(job), 0.1)
    assert (slots.running, slots.free, slots.waiting) == (1, 1, 0)


async def test_a_batch_job_enters_no_slot_that_is_reserved():
    slots = Slots(2)
    (waiting,) = filled(slots, 1)
    slots.leave(waiting)
    (other,) = filled(slots, 1)
    back = asyncio.create_task(slots.enter(waiting))
    await asyncio.sleep(0)
    assert not back.done()
    slots.remove(other)
    await asyncio.wait_for(back, 0.1)
    assert slots.running == 1


async def test_an_interactive_job_returns_before_batch_jobs():
    slots = Slots(2)
    first, person, holder = batch_job(), person_job(), person_job()
    for job in (first, person):
        slots.add(job)
        slots.leave(job)
    slots.add(holder)
    slots.add(other := person_job())
    order: list[RunningJob] = []

    async def back(job: RunningJob) -> None:
        await slots.enter(job)
        order.append(job)

    tasks = [asyncio.create_task(back(job)) for job in (first, person)]
    await asyncio.sleep(0)
    slots.remove(holder)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == [person]
    slots.remove(other)
    slots.remove(person)
    await asyncio.gather(*tasks)
    assert order == [person, first]


async def test_a_cancelled_return_leaves_the_slot_to_others():
    slots = Slots(1)
    waiting, other = person_job(), person_job()
    slots.add(waiting)
    slots.leave(waiting)
    slots.add(other)
    back = asyncio.create_task(slots.enter(waiting))
    await asyncio.sleep(0)
    back.cancel()
    await asyncio.gather(back, return_exceptions=True)
    slots.remove(other)
    slots.remove(waiting)
    assert (slots.free, slots.jobs()) == (1, [])


async def test_one_site_gets_a_quarter_of_the_slots():
    slots = Slots(32)
    jobs = [batch_job("example.com") for _ in range(20)]
    for job in jobs:
        slots.add(job)
    assert (slots.running, slots.waiting) == (8, 12)
    slots.add(batch_job("other.example"))
    assert slots.running == 9
    back = asyncio.create_task(slots.enter(jobs[-1]))
    await asyncio.sleep(0)
    slots.remove(jobs[0])
    await asyncio.wait_for(back, 0.1)
    assert slots.running == 9


async def test_a_job_that_waited_long_for_its_slot_counts_as_active_once_it_has_one():
    slots = Slots(32)
    jobs = [batch_job("example.com") for _ in range(slots.max_per_site + 1)]
    for job in jobs:
        slots.add(job)
    waiting = jobs[-1]
    waiting.activity._last -= 1000
    back = asyncio.create_task(slots.enter(waiting))
    await asyncio.sleep(0)
    assert waiting.activity.idle_seconds() > 900
    slots.remove(jobs[0])
    # Before the task that waits for the slot takes its next step.
    assert (slots.is_waiting(waiting), back.done()) == (False, False)
    assert waiting.activity.idle_seconds() < 1
    await back


async def test_one_user_never_gets_all_slots():
    slots, user = Slots(8), uuid4()
    for _ in range(8):
        slots.add(person_job(user))
    assert (slots.running, slots.users_at_limit()) == (6, frozenset({user}))
    slots.add(person_job(uuid4()))
    assert slots.running == 7


async def test_no_batch_job_is_claimed_while_too_many_wait():
    slots = Slots(2)
    for _ in range(2 * WAITING_PER_SLOT):
        slots.add_waiting(batch_job())
    assert (slots.free_for_background, slots.free) == (0, 2)


async def test_the_jobs_held_longest_are_snoozed_when_no_more_can_wait():
    slots = Slots(2)
    jobs = [batch_job() for _ in range(2 * WAITING_PER_SLOT)]
    for job in jobs:
        slots.add_waiting(job)
    assert slots.jobs_to_snooze() == []
    for age, job in enumerate(jobs):
        job.since -= MIN_STAY_SECONDS + age
    assert slots.jobs_to_snooze() == [jobs[-1], jobs[-2]]


async def test_jobs_that_are_being_snoozed_already_make_room():
    slots = Slots(2)
    jobs = [batch_job() for _ in range(2 * WAITING_PER_SLOT)]
    for job in jobs:
        slots.add_waiting(job)
        job.since -= MIN_STAY_SECONDS
    for job in slots.jobs_to_snooze():
        job.stop(StopReason.SNOOZED)
    assert slots.jobs_to_snooze() == []


async def test_a_site_with_as_many_jobs_as_it_may_have_is_at_its_limit():
    slots = Slots(32)
    for number in range(8):
        assert slots.sites_at_limit() == frozenset()
        slots.add(batch_job("example.com"))
        slots.add(batch_job(f"{number}.example"))
    slots.add(batch_job(None))
    assert slots.capacity(8).sites_at_limit == {"example.com"}


@pytest.mark.parametrize(("jobs", "again"), [(7, False), (8, True)])
async def test_a_claim_in_which_a_site_got_all_it_may_have_is_followed_by_another(
    jobs: int, *, again: bool
):
    slots = Slots(32)
    claims = [replace(claim(), site="example.com") for _ in range(jobs)] + [claim()] * 9
    assert slots.note_claimed(slots.capacity(32), claims) is again


def counted_slots(size: int) -> tuple[Slots, list[bool]]:
    """Slots, and a list that grows with each call of `on_free`."""
    calls: list[bool] = []
    return Slots(size, lambda: calls.append(True)), calls


async def test_a_job_that_leaves_its_slot_asks_for_no_claim_when_the_last_one_left_room():
    slots, calls = counted_slots(8)
    jobs = filled(slots, 4)
    slots.note_claimed(slots.capacity(8), [])
    for job in jobs:
        slots.leave(job)
        await slots.enter(job)
    assert calls == []


async def test_a_job_that_leaves_its_slot_asks_for_a_claim_when_the_last_one_took_all_it_might():
    slots, calls = counted_slots(8)
    (job,) = filled(slots, 1)
    capacity = slots.capacity(8)
    slots.note_claimed(capacity, [claim()] * capacity.background)
    slots.leave(job)
    assert calls == [True]


async def test_a_slot_that_becomes_free_during_a_claim_asks_for_another():
    slots, calls = counted_slots(8)
    (job,) = filled(slots, 1)
    slots.note_claimed(slots.capacity(8), [])
    slots.capacity(8)
    slots.leave(job)
    assert calls == [True]


async def test_a_user_who_was_passed_over_requests_a_claim_once_they_have_room():
    slots, calls = counted_slots(8)
    user, other = uuid4(), batch_job()
    his = [batch_job(user=user) for _ in range(slots.max_per_user)]
    for job in [*his, other]:
        slots.add(job)
    slots.leave(other)
    calls.clear()
    capacity = slots.capacity(8)
    assert capacity.users_at_limit == {user}
    slots.note_claimed(capacity, [])
    slots.remove(other)
    assert calls == []
    slots.leave(his[0])
    assert calls == [True]


@pytest.mark.parametrize(
    ("size", "running", "few"), [(32, 28, True), (32, 25, True), (32, 24, False), (2, 1, False)]
)
async def test_a_few_free_slots_are_less_than_an_eighth(size: int, running: int, *, few: bool):
    slots = Slots(size)
    filled(slots, running)
    assert slots.few_are_free is few
