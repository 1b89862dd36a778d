"""When a worker polls: at once for a submission, together for a few free slots."""

from __future__ import annotations

import asyncio

import pytest

from siteatlas.net.egress import EgressPolicy
from siteatlas.scheduler import consumer as consumer_module
from siteatlas.scheduler.consumer import Consumer
from siteatlas.scheduler.slots import RunningJob
from siteatlas.settings import Settings
from tests.scheduler.test_slots import claim

SOON_SECONDS = 5.0
LATER_SECONDS = 0.3


@pytest.fixture(autouse=True)
def long_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls only for a reason: the intervals are longer than any test."""
    monkeypatch.setattr(consumer_module, "MIN_POLL_SECONDS", 60.0)


def consumer_with(free: int) -> Consumer:
    """A worker with so many free slots of 32."""
    consumer = Consumer(Settings(concurrency=32), EgressPolicy.from_text(""))
    for _ in range(32 - free):
        consumer._slots._running.add(RunningJob(claim()))
    return consumer


async def polls_within(consumer: Consumer, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await consumer._wait_for_poll(found_jobs=True)
    except TimeoutError:
        return False
    consumer._begin_poll()
    return True


async def test_without_a_reason_the_next_poll_is_an_interval_away():
    assert not await polls_within(consumer_with(free=2), LATER_SECONDS)


async def test_a_few_free_slots_wait_for_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(consumer_module, "SHARED_POLL_SECONDS", 60.0)
    consumer = consumer_with(free=2)
    consumer._poll_for_free_slots()
    assert not await polls_within(consumer, LATER_SECONDS)


async def test_a_few_free_slots_wait_for_a_moment_only_and_share_the_poll():
    consumer = consumer_with(free=2)
    for _ in range(5):
        consumer._poll_for_free_slots()
    assert await polls_within(consumer, SOON_SECONDS)
    assert not await polls_within(consumer, LATER_SECONDS)


async def test_a_poll_serves_slots_that_became_free_before_it():
    consumer = consumer_with(free=2)
    consumer._poll_for_free_slots()
    consumer._begin_poll()
    assert not await polls_within(consumer, LATER_SECONDS)


async def test_slots_that_become_free_after_a_poll_have_one_of_their_own():
    consumer = consumer_with(free=2)
    consumer._poll_for_free_slots()
    consumer._begin_poll()
    consumer._poll_for_free_slots()
    assert await polls_within(consumer, SOON_SECONDS)


async def test_a_submission_does_not_wait_for_a_shared_poll(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(consumer_module, "SHARED_POLL_SECONDS", 60.0)
    consumer = consumer_with(free=2)
    consumer._poll_for_free_slots()
    consumer.wake()
    assert await polls_within(consumer, SOON_SECONDS)


async def test_many_free_slots_do_not_wait_for_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(consumer_module, "SHARED_POLL_SECONDS", 60.0)
    consumer = consumer_with(free=16)
    consumer._poll_for_free_slots()
    assert await polls_within(consumer, SOON_SECONDS)
