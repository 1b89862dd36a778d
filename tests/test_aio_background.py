"""A background task ends with its block, and its crash is never silent."""

from __future__ import annotations

import asyncio
import contextlib
import io

import pytest

from siteatlas.aio import background_task
from siteatlas.errors import DatabaseUnavailable
from tests.fixtures.log_lines import log_lines, logged

__all__ = ["log_lines"]


async def crash() -> None:
    raise ZeroDivisionError("boom")


async def crash_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise ZeroDivisionError("while ending")


async def enough_rounds() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_task_runs_while_the_block_does_and_is_cancelled_at_its_end(
    log_lines: io.StringIO,
) -> None:
    told: list[str] = []

    async def work() -> None:
        told.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            told.append("ended")

    async with background_task(work()):
        await enough_rounds()
        assert told == ["started"]
    assert told == ["started", "ended"]
    assert log_lines.getvalue() == ""


async def test_a_crash_is_logged_with_its_traceback_and_the_block_goes_on(
    log_lines: io.StringIO,
) -> None:
    async with background_task(crash()):
        await enough_rounds()
    (line,) = logged(log_lines, "background_task_crashed")
    assert (line["level"], line["task"]) == ("error", "crash")
    assert "ZeroDivisionError: boom" in str(line["exception"])


async def test_an_error_of_ours_is_logged_with_its_code_and_without_a_traceback(
    log_lines: io.StringIO,
) -> None:
    async def fail() -> None:
        raise DatabaseUnavailable("The database is away.")

    async with background_task(fail()):
        await enough_rounds()
    (line,) = logged(log_lines, "background_task_failed")
    assert (line["level"], line["error_code"]) == ("warning", DatabaseUnavailable.code)
    assert "exception" not in line


async def test_the_crash_of_an_essential_task_cancels_the_block_and_is_raised(
    log_lines: io.StringIO,
) -> None:
    cleaned_up = False

    async def hold() -> None:
        nonlocal cleaned_up
        async with background_task(crash(), essential=True):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # the cancel is over, so cleaning up may take its time
                cleaned_up = True

    with pytest.raises(ZeroDivisionError, match="boom"):
        await asyncio.wait_for(hold(), 10)
    assert cleaned_up
    assert len(logged(log_lines, "background_task_crashed")) == 1


async def test_the_block_may_go_on_in_its_task_after_the_crash() -> None:
    async def hold() -> int:
        with contextlib.suppress(ZeroDivisionError):
            async with background_task(crash(), essential=True):
                await asyncio.Event().wait()
        await asyncio.sleep(0)
        return asyncio.current_task().cancelling()  # type: ignore[union-attr]

    assert await asyncio.wait_for(hold(), 10) == 0


async def test_an_error_of_the_block_after_the_crash_is_not_hidden() -> None:
    async def hold() -> None:
        async with background_task(crash(), essential=True):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError from None

    with pytest.raises(KeyError):
        await asyncio.wait_for(hold(), 10)


async def test_a_block_that_ignores_the_cancel_still_raises_the_crash() -> None:
    async def hold() -> None:
        async with background_task(crash(), essential=True):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(hold(), 10)


async def test_a_cancel_from_outside_stays_a_cancel() -> None:
    async def hold() -> None:
        async with background_task(asyncio.sleep(60), essential=True):
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await enough_rounds()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancel_from_outside_during_a_crash_stays_a_cancel() -> None:
    async def hold() -> None:
        async with background_task(crash(), essential=True):
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.Event().wait()

    async def cancelled_twice() -> None:
        async with background_task(crash(), essential=True):
            try:
                await asyncio.Event().wait()
            finally:
                asyncio.current_task().cancel()  # type: ignore[union-attr]

    for work in (hold(), cancelled_twice()):
        task = asyncio.create_task(work)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_crash_at_the_end_of_the_block_is_logged_but_not_raised(
    log_lines: io.StringIO,
) -> None:
    async with background_task(crash_when_cancelled(), essential=True):
        await enough_rounds()
    assert len(logged(log_lines, "background_task_crashed")) == 1
