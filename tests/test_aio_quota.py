"""Quota: a total, and a share of it per holder."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from uuid import UUID, uuid4

import pytest

from siteatlas.aio import Quota, WaitingQuota


def test_a_holder_gets_a_share_and_all_together_the_total() -> None:
    quota, ann, bob = Quota(3, per_user=2), uuid4(), uuid4()
    with ExitStack() as taken:
        taken.enter_context(quota.taken_by(ann))
        assert quota.has_room(ann)
        taken.enter_context(quota.taken_by(ann))
        assert (quota.has_room(ann), quota.has_room(bob)) == (False, True)
        taken.enter_context(quota.taken_by(bob))
        assert (quota.taken, quota.has_room(bob), quota.has_room(None)) == (3, False, False)
    assert (quota.taken, quota.has_room(ann)) == (0, True)


def test_a_holder_without_a_share_can_have_all() -> None:
    quota = Quota(2, per_user=1)
    with quota.taken_by(None):
        assert quota.has_room(None)


def test_what_was_taken_is_given_back_when_its_block_fails() -> None:
    quota, ann = Quota(1, per_user=1), uuid4()
    with pytest.raises(RuntimeError), quota.taken_by(ann):
        raise RuntimeError
    assert quota.has_room(ann)


async def hold(
    quota: WaitingQuota, holder: UUID, order: list[UUID], *, seconds: float = 30
) -> None:
    async with quota.place(holder, seconds):
        order.append(holder)
        await asyncio.sleep(0)


async def test_places_are_passed_on_in_order_to_those_who_may_have_them() -> None:
    quota, order = WaitingQuota(2, 1, Quota(10, per_user=10)), list[UUID]()
    ann, bob, carl = uuid4(), uuid4(), uuid4()
    holders = [ann, ann, bob, carl, ann, bob]
    await asyncio.gather(*(hold(quota, holder, order) for holder in holders))
    assert order[:4] == [ann, bob, ann, carl]
    assert sorted(order) == sorted(holders)
    assert (quota.taken, quota.waiting.taken) == (0, 0)


async def test_who_waits_too_long_or_with_too_many_gets_no_place() -> None:
    quota, ann, bob = WaitingQuota(1, 1, Quota(1, per_user=1)), uuid4(), uuid4()
    async with quota.place(ann, 30):
        with pytest.raises(TimeoutError):
            await hold(quota, bob, [], seconds=0)
        waiting = asyncio.create_task(hold(quota, bob, []))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await hold(quota, ann, [])
    await waiting
    assert (quota.taken, quota.waiting.taken) == (0, 0)


@pytest.mark.parametrize("admitted", [False, True])
async def test_a_place_is_not_lost_with_a_waiter_that_is_cancelled(admitted: bool) -> None:
    quota, ann = WaitingQuota(1, 1, Quota(2, per_user=2)), uuid4()
    async with quota.place(ann, 30):
        waiting = asyncio.create_task(hold(quota, ann, []))
        await asyncio.sleep(0)
        if not admitted:
            waiting.cancel()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert quota.taken == 0
    await hold(quota, ann, [])
