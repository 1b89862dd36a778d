"""Turns: one request of a user at a time, and nothing is kept of users who have none."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from siteatlas.access.identity import LOCAL_IDENTITY, Identity
from siteatlas.access.keys import ALL_SCOPES
from siteatlas.access.limits import QueueRoom
from siteatlas.aio import Quota
from siteatlas.errors import TooManyRequests


def user() -> Identity:
    return Identity(uuid4(), "ann", ALL_SCOPES)


def room() -> QueueRoom:
    return QueueRoom(10, Quota(3, per_user=2))


async def take_turn(queue_room: QueueRoom, identity: Identity, taken: list[int], name: int) -> None:
    async with queue_room.turn(identity):
        taken.append(name)
        await asyncio.sleep(0)
        taken.append(name)


async def test_requests_of_a_user_take_turns_in_the_order_in_which_they_came():
    queue_room, ann, taken = room(), user(), list[int]()
    await asyncio.gather(*(take_turn(queue_room, ann, taken, name) for name in range(3)))
    assert taken == [0, 0, 1, 1, 2, 2]


async def test_users_do_not_wait_for_each_other():
    queue_room = room()
    async with queue_room.turn(user()), queue_room.turn(user()):
        pass


@pytest.mark.parametrize(("identity", "is_needed"), [(LOCAL_IDENTITY, True), (user(), False)])
async def test_local_requests_and_those_that_queue_nothing_take_no_turns(
    identity: Identity, is_needed: bool
):
    queue_room = room()
    async with (
        queue_room.turn(identity, is_needed=is_needed),
        queue_room.turn(identity, is_needed=is_needed),
    ):
        pass


async def test_a_request_that_is_cancelled_while_it_waits_leaves_the_turn_to_the_next():
    queue_room, ann, taken = room(), user(), list[int]()
    async with queue_room.turn(ann):
        first, second = (
            asyncio.create_task(take_turn(queue_room, ann, taken, name)) for name in range(2)
        )
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(TooManyRequests):
            await take_turn(queue_room, ann, taken, 3)
    await asyncio.wait({first, second})
    assert taken == [1, 1]


async def test_a_long_list_lets_others_have_their_turn_in_between():
    queue_room, ann, taken = room(), user(), list[int]()
    async with queue_room.turn(ann) as turn:
        other = asyncio.create_task(take_turn(queue_room, ann, taken, 9))
        async for item in turn.each(range(3)):
            taken.append(item)
            await asyncio.sleep(0)
    await other
    assert taken == [0, 9, 9, 1, 2]


async def test_nothing_is_kept_of_users_whose_requests_have_ended():
    queue_room = room()
    for _ in range(100):
        async with queue_room.turn(user()):
            assert len(queue_room._queues) == 1
    assert not queue_room._queues
    assert not queue_room.waiting.taken
