"""The runner of a job learns when all requests of the job wait, and lets it continue."""

from __future__ import annotations

import asyncio
import itertools
import math
import time

import pytest

from siteatlas.net.address import parse_url
from siteatlas.net.client import Politeness, Waits, observe_waits

SITE = parse_url("http://example.com/")
OTHER = parse_url("http://other.example.com/")


class Observer:
    """Notes what a job reports; `free` is the slot it needs to go on."""

    def __init__(self) -> None:
        self.idle: list[float] = []
        self.resumed = 0
        self.free = asyncio.Event()
        self.free.set()
        self.waits = Waits(self.idle.append, self.resume)

    async def resume(self) -> None:
        await self.free.wait()
        self.resumed += 1


async def request(politeness: Politeness, *, hold: float = 0.0) -> float:
    async with politeness.slot(SITE):
        started = time.monotonic()
        await asyncio.sleep(hold)
        return started


async def test_a_job_that_waits_for_its_turn_says_how_long():
    politeness, observer = Politeness(0.2, 2), Observer()
    with observe_waits(observer.waits):
        await request(politeness)
        assert observer.idle == []
        await request(politeness)
    assert observer.idle == [pytest.approx(0.2, abs=0.1)]
    assert observer.resumed == 1


@pytest.mark.slow
async def test_a_job_with_a_running_request_is_not_idle():
    politeness, observer = Politeness(0.1, 2), Observer()
    with observe_waits(observer.waits):
        await asyncio.gather(request(politeness, hold=0.3), request(politeness))
    assert observer.idle == []


@pytest.mark.slow
async def test_the_end_of_the_running_request_leaves_the_others_waiting():
    politeness, observer = Politeness(1.5, 2), Observer()
    with observe_waits(observer.waits):
        await asyncio.gather(request(politeness, hold=0.1), request(politeness))
    (idle,) = observer.idle
    assert 0 < idle < 1.5


async def test_a_job_that_waits_for_a_connection_of_others_does_not_know_how_long():
    politeness, observer = Politeness(0, 1), Observer()
    holder = asyncio.create_task(request(politeness, hold=0.1))
    await asyncio.sleep(0)
    with observe_waits(observer.waits):
        await request(politeness)
    await holder
    assert observer.idle == [math.inf]


async def test_an_idle_job_sends_nothing_until_it_has_its_slot_back():
    politeness, observer = Politeness(0.05, 2), Observer()
    with observe_waits(observer.waits):
        await request(politeness)
        observer.free.clear()
        waiting = asyncio.create_task(request(politeness))
        await asyncio.sleep(0.15)
        assert not waiting.done()
        assert observer.waits.is_idle
        observer.free.set()
        await waiting
    assert not observer.waits.is_idle


@pytest.mark.slow
async def test_the_delay_holds_after_a_long_wait_for_the_slot():
    politeness, observer = Politeness(0.1, 4), Observer()
    await request(politeness)
    observer.free.clear()
    with observe_waits(observer.waits):
        late = [asyncio.create_task(request(politeness)) for _ in range(3)]
    await asyncio.sleep(0.5)
    observer.free.set()
    starts = sorted(await asyncio.gather(*late))
    assert all(later - sooner > 0.09 for sooner, later in itertools.pairwise(starts))


@pytest.mark.slow
async def test_another_request_of_an_idle_job_needs_the_slot_too():
    politeness, observer = Politeness(0.3, 2), Observer()
    with observe_waits(observer.waits):
        await request(politeness)
        waiting = asyncio.create_task(request(politeness))
        await asyncio.sleep(0.01)
        async with politeness.slot(OTHER):
            assert observer.resumed == 1
        await waiting


async def test_a_cancelled_wait_leaves_nothing_behind():
    politeness, observer = Politeness(30, 2), Observer()
    with observe_waits(observer.waits):
        await request(politeness)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await request(politeness)
    assert not observer.waits._ends
    assert observer.resumed == 0
