"""The loops of a process run until they are stopped; if one ends early, that is noticed."""

from __future__ import annotations

import asyncio

import pytest

from siteatlas.errors import SchedulerEnded
from siteatlas.scheduler.outages import run_until


async def test_loops_run_until_they_are_stopped():
    stop, loop = asyncio.Event(), asyncio.create_task(asyncio.sleep(60))
    waiting = asyncio.create_task(run_until(stop, [loop]))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    stop.set()
    await asyncio.wait_for(waiting, 1)
    assert not loop.done()
    loop.cancel()


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_loop_that_ends_before_is_an_error(cancelled: bool):
    loop = asyncio.create_task(asyncio.sleep(60 if cancelled else 0))
    await asyncio.sleep(0)
    if cancelled:
        loop.cancel()
    with pytest.raises(SchedulerEnded):
        await asyncio.wait_for(run_until(asyncio.Event(), [loop]), 1)
