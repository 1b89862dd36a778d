"""A loop survives errors in one of its iterations, and logs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from siteatlas.errors import DatabaseBusy, DatabaseUnavailable
from siteatlas.scheduler import outages
from siteatlas.scheduler.outages import REPEAT_LOG_SECONDS, ResilientLoop


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(outages, "MAX_PAUSE_SECONDS", 0.0)


async def run_round(one: ResilientLoop, error: BaseException | None = None) -> None:
    async with one.iteration():
        if error is not None:
            raise error


def at(times: list[float]) -> Callable[[], float]:
    return lambda: times[0]


async def test_an_outage_is_logged_with_its_code_and_again_after_a_minute():
    now = [1000.0]
    one = ResilientLoop("poll", clock=at(now))
    with capture_logs() as lines:
        await run_round(one, DatabaseUnavailable())
        now[0] += REPEAT_LOG_SECONDS - 1
        await run_round(one, DatabaseUnavailable())
        now[0] += 1
        await run_round(one, DatabaseBusy())
        now[0] += 2
        await run_round(one)
        await run_round(one)
    told = [(line["event"], line.get("reason"), line["seconds"]) for line in lines]
    assert told == [
        ("database_unavailable", "database_unavailable", 0.0),
        ("database_unavailable", "database_busy", 60.0),
        ("database_recovered", None, 62.0),
    ]


async def test_the_next_outage_is_logged_at_once():
    one = ResilientLoop("poll")
    with capture_logs() as lines:
        for error in (DatabaseUnavailable(), None, DatabaseBusy()):
            await run_round(one, error)
    assert [line["event"] for line in lines] == [
        "database_unavailable",
        "database_recovered",
        "database_unavailable",
    ]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("unexpected")])
async def test_an_error_that_is_not_meant_for_the_loop_is_logged_and_outlived(
    error: BaseException,
):
    with capture_logs() as lines:
        await run_round(ResilientLoop("poll"), error)
    assert [(line["event"], line["loop"]) for line in lines] == [("loop_iteration_failed", "poll")]


async def test_a_loop_that_is_cancelled_ends():
    async def loop() -> None:
        one = ResilientLoop("poll")
        while True:
            async with one.iteration():
                await asyncio.sleep(10)

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    task.cancel()
    with capture_logs() as lines:
        await asyncio.wait([task], timeout=1)
    assert task.cancelled()
    assert lines == []
