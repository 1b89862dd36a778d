"""Whether the installation is closed: asked again in time, without making requests wait."""

from __future__ import annotations

import asyncio

from siteatlas.access.installation import MAX_AGE_SECONDS, REFRESH_SECONDS, Installation
from siteatlas.errors import DatabaseUnavailable


class Asked:
    """A database that answers when it is told to, and a clock."""

    def __init__(self, *, made: bool = False) -> None:
        self.made = made
        self.now = 0.0
        self.questions = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_away = False

    async def ask(self) -> bool:
        self.questions += 1
        made = self.made
        await self.answers.wait()
        if self.is_away:
            raise DatabaseUnavailable
        return made

    def clock(self) -> float:
        return self.now

    def installation(self) -> Installation:
        return Installation(ask=self.ask, clock=self.clock)


async def test_an_answer_is_used_for_a_while() -> None:
    asked = Asked()
    installation = asked.installation()
    assert not await installation.is_closed()
    asked.now += REFRESH_SECONDS / 2
    assert not await installation.is_closed()
    assert asked.questions == 1


async def test_a_request_does_not_wait_while_an_answer_is_refreshed() -> None:
    asked = Asked()
    installation = asked.installation()
    await installation.is_closed()
    asked.made, asked.now = True, REFRESH_SECONDS
    asked.answers.clear()
    for _ in range(3):
        assert not await installation.is_closed()
    asked.answers.set()
    await installation.finish()
    assert await installation.is_closed()
    assert asked.questions == 2


async def test_an_answer_that_is_too_old_is_not_used() -> None:
    asked = Asked()
    installation = asked.installation()
    await installation.is_closed()
    asked.made, asked.now = True, MAX_AGE_SECONDS
    assert await installation.is_closed()


async def test_a_key_made_here_counts_although_an_earlier_question_is_under_way() -> None:
    asked = Asked()
    installation = asked.installation()
    await installation.is_closed()
    asked.now = REFRESH_SECONDS
    asked.answers.clear()
    await installation.is_closed()
    await asyncio.sleep(0)
    asked.now += 0.1
    installation.close()
    asked.answers.set()
    await installation.finish()
    assert await installation.is_closed()


async def test_a_refresh_that_fails_keeps_what_is_known() -> None:
    asked = Asked(made=True)
    installation = asked.installation()
    await installation.is_closed()
    asked.is_away, asked.now = True, REFRESH_SECONDS
    await installation.is_closed()
    await installation.finish()
    assert await installation.is_closed()
