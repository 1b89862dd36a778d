"""Fairness on the event loop: long work yields to the loop, and requests of people go first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from siteatlas.aio import INTERACTIVE_SECONDS, MAX_YIELD_SECONDS, FairLoop, fair_loop
from tests.fixtures.timings import measured

PIECE_SECONDS = 0.002


def work(seconds: float = PIECE_SECONDS) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def heavy(own: FairLoop, pieces: int, done: list[str]) -> None:
    for _ in range(pieces):
        async with own.time_slice():
            work()
        done.append("piece")


async def test_the_loop_goes_round_after_every_piece_however_many_work() -> None:
    own = FairLoop()
    done: list[str] = []
    tasks = [asyncio.create_task(heavy(own, 20, done)) for _ in range(5)]
    rounds = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        rounds += 1
    assert len(done) == 100
    assert rounds >= 100


async def test_small_pieces_share_a_round() -> None:
    own = FairLoop()
    rounds = 0

    async def many_small() -> None:
        for _ in range(1000):
            async with own.time_slice():
                pass

    task = asyncio.create_task(many_small())
    while not task.done():
        await asyncio.sleep(0)
        rounds += 1
    assert rounds < 500


async def test_work_waits_while_somebody_waits_for_an_answer() -> None:
    own = FairLoop()
    done: list[str] = []
    with own.interactive():
        task = asyncio.create_task(heavy(own, 1, done))
        await asyncio.sleep(MAX_YIELD_SECONDS / 5)
        assert done == []
    await task
    assert done == ["piece"]


async def test_the_loop_goes_round_between_the_pieces_of_an_iterable() -> None:
    own = FairLoop()
    rounds = 0

    def heavy_pieces() -> Iterator[int]:
        for number in range(10):
            work()
            yield number

    async def read() -> list[int]:
        return [piece async for piece in own.time_slices(heavy_pieces())]

    task = asyncio.create_task(read())
    while not task.done():
        await asyncio.sleep(0)
        rounds += 1
    assert await task == list(range(10))
    assert rounds >= 10


async def test_the_pieces_of_an_iterable_wait_for_people_too() -> None:
    own = FairLoop()

    async def first() -> str:
        return await anext(own.time_slices("abc"))

    with own.interactive():
        task = asyncio.create_task(first())
        await asyncio.sleep(MAX_YIELD_SECONDS / 5)
        assert not task.done()
    assert await task == "a"


async def test_work_goes_on_when_there_is_no_end_of_people() -> None:
    own = FairLoop()
    done: list[str] = []
    with own.interactive():
        task = asyncio.create_task(heavy(own, 40, done))
        await asyncio.sleep(MAX_YIELD_SECONDS * 3)
        assert 1 <= len(done) < 40
    await task


@pytest.mark.slow
async def test_somebody_who_takes_long_no_longer_goes_first() -> None:
    own = FairLoop()
    done: list[str] = []
    with own.interactive():
        await asyncio.sleep(INTERACTIVE_SECONDS * 1.2)
        started = time.perf_counter()
        await heavy(own, 1, done)
        measured(time.perf_counter() - started, MAX_YIELD_SECONDS)
    async with own.time_slice():
        pass


async def test_a_piece_that_fails_gives_the_turn_back() -> None:
    own = FairLoop()
    with pytest.raises(ZeroDivisionError):
        async with own.time_slice():
            raise ZeroDivisionError
    async with asyncio.timeout(1), own.time_slice():
        pass


def test_each_event_loop_has_turns_of_its_own() -> None:
    async def mine() -> FairLoop:
        assert fair_loop() is fair_loop()
        return fair_loop()

    assert asyncio.run(mine()) is not asyncio.run(mine())
