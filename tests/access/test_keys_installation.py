"""Whether the installation is closed: checked again in time, without making requests wait."""

from __future__ import annotations

import asyncio

import pytest

from siteatlas.access import keys as installation_module
from siteatlas.access.keys import MAX_AGE_SECONDS, REFRESH_SECONDS, Installation
from siteatlas.errors import DatabaseUnavailable


class FakeDatabase:
    """A database that answers when it is told to, and a clock."""

    def __init__(self, *, made: bool = False) -> None:
        self.made = made
        self.now = 0.0
        self.query_count = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_away = False

    async def any_key_made(self) -> bool:
        self.query_count += 1
        made = self.made
        await self.answers.wait()
        if self.is_away:
            raise DatabaseUnavailable
        return made

    def clock(self) -> float:
        return self.now

    def installation(self) -> Installation:
        return Installation(query=self.any_key_made, clock=self.clock)


@pytest.fixture
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries outlive the deadline of those who wait for them."""
    monkeypatch.setattr(installation_module, "ANSWER_SECONDS", 0.05)


async def settle() -> None:
    """Let tasks run that have nothing to wait for."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_answer_is_used_for_a_while() -> None:
    database = FakeDatabase()
    installation = database.installation()
    assert not await installation.is_closed()
    database.now += REFRESH_SECONDS / 2
    assert not await installation.is_closed()
    assert database.query_count == 1


async def test_a_request_does_not_wait_while_an_answer_is_refreshed() -> None:
    database = FakeDatabase()
    installation = database.installation()
    await installation.is_closed()
    database.made, database.now = True, REFRESH_SECONDS
    database.answers.clear()
    for _ in range(3):
        assert not await installation.is_closed()
    await settle()
    database.answers.set()
    await settle()
    assert await installation.is_closed()
    assert database.query_count == 2


async def test_an_answer_that_is_too_old_is_not_used() -> None:
    database = FakeDatabase()
    installation = database.installation()
    await installation.is_closed()
    database.made, database.now = True, MAX_AGE_SECONDS
    assert await installation.is_closed()


async def test_a_key_made_here_counts_although_an_earlier_query_is_running() -> None:
    database = FakeDatabase()
    installation = database.installation()
    await installation.is_closed()
    database.now = REFRESH_SECONDS
    database.answers.clear()
    await installation.is_closed()
    await settle()
    database.now += 0.1
    installation.close()
    database.answers.set()
    await settle()
    assert await installation.is_closed()


@pytest.mark.usefixtures("short_deadline")
async def test_a_key_made_here_counts_although_an_earlier_query_outlives_its_deadline() -> None:
    database = FakeDatabase()
    installation = database.installation()
    await installation.is_closed()
    database.now = MAX_AGE_SECONDS
    database.answers.clear()
    assert not await installation.is_closed()
    installation.close()
    database.now += MAX_AGE_SECONDS
    database.answers.set()
    assert await installation.is_closed()
    assert database.query_count == 2


@pytest.mark.usefixtures("short_deadline")
async def test_an_answer_after_a_deadline_is_used() -> None:
    database = FakeDatabase()
    installation = database.installation()
    await installation.is_closed()
    database.made, database.now = True, MAX_AGE_SECONDS
    database.answers.clear()
    assert not await installation.is_closed()
    database.now += MAX_AGE_SECONDS
    database.answers.set()
    assert await installation.is_closed()
    assert database.query_count == 2


async def test_a_refresh_that_fails_keeps_what_is_known() -> None:
    database = FakeDatabase(made=True)
    installation = database.installation()
    await installation.is_closed()
    database.is_away, database.now = True, REFRESH_SECONDS
    await installation.is_closed()
    await settle()
    assert await installation.is_closed()
    assert database.query_count == 2


async def test_no_query_is_left_after_the_end() -> None:
    database = FakeDatabase()
    installation = database.installation()
    await installation.is_closed()
    database.now = REFRESH_SECONDS
    database.answers.clear()
    await installation.is_closed()
    await settle()
    assert len(asyncio.all_tasks()) > 1
    await installation.finish()
    assert asyncio.all_tasks() == {asyncio.current_task()}
