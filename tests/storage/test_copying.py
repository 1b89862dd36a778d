"""A connection that is lost around the end of a COPY leaves no trace of an exception."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from siteatlas.logs import DRIVER_NOISE, configure_logging
from siteatlas.storage.copying import copy_time_limit


class LateDriver:
    """Tells of a lost connection as the driver does: in a later turn of the loop."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Any], None]] = []

    def add_termination_listener(self, listener: Callable[[Any], None]) -> None:
        self._listeners.append(listener)

    def remove_termination_listener(self, listener: Callable[[Any], None]) -> None:
        self._listeners.remove(listener)

    def lose(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, self)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level, stream = root.handlers[:], root.level, io.StringIO()
    configure_logging("info", "console", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


async def test_a_loss_that_is_reported_after_the_copy_ended_is_ignored(logged: io.StringIO):
    driver = LateDriver()
    async with copy_time_limit(driver, 30):
        driver.lose()
    await asyncio.sleep(0)
    assert logged.getvalue() == ""


async def test_a_loss_during_the_copy_ends_it():
    driver = LateDriver()

    async def copy() -> None:
        async with copy_time_limit(driver, 30):
            driver.lose()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(copy(), 5)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "told"), [(DRIVER_NOISE, False), ("something else", True)])
async def test_only_the_future_that_the_driver_forgets_is_not_logged(
    logged: io.StringIO, words: str, told: bool
):
    future = asyncio.get_running_loop().create_future()
    future.set_exception(ConnectionError(words))
    del future
    gc.collect()
    assert ("never retrieved" in logged.getvalue()) is told
