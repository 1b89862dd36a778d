"""When a worker polls: at once for a submission, together for a few free slots."""

from __future__ import annotations

import asyncio

import pytest

from siteatlas.scheduler import consumer as polling_module
from siteatlas.scheduler.consumer import Polling

SOON_SECONDS = 5.0
LATER_SECONDS = 0.3


@pytest.fixture
def polling(monkeypatch: pytest.MonkeyPatch) -> Polling:
    """Polls only for a reason: its intervals are longer than any test."""
    monkeypatch.setattr(polling_module, "MIN_POLL_SECONDS", 60.0)
    return Polling()


async def polls_within(polling: Polling, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await polling.wait(found_jobs=True)
    except TimeoutError:
        return False
    polling.begin_poll()
    return True


async def test_without_a_reason_the_next_poll_is_an_interval_away(polling: Polling) -> None:
    assert not await polls_within(polling, LATER_SECONDS)


async def test_a_few_free_slots_wait_for_more(
    polling: Polling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling_module, "SHARED_POLL_SECONDS", 60.0)
    polling.poll_for_free_slots(few=True)
    assert not await polls_within(polling, LATER_SECONDS)


async def test_a_few_free_slots_wait_for_a_moment_only_and_share_the_poll(polling: Polling) -> None:
    for _ in range(5):
        polling.poll_for_free_slots(few=True)
    assert await polls_within(polling, SOON_SECONDS)
    assert not await polls_within(polling, LATER_SECONDS)


async def test_a_poll_serves_slots_that_became_free_before_it(polling: Polling) -> None:
    polling.poll_for_free_slots(few=True)
    polling.begin_poll()
    assert not await polls_within(polling, LATER_SECONDS)


async def test_slots_that_become_free_after_a_poll_have_one_of_their_own(polling: Polling) -> None:
    polling.poll_for_free_slots(few=True)
    polling.begin_poll()
    polling.poll_for_free_slots(few=True)
    assert await polls_within(polling, SOON_SECONDS)


@pytest.mark.parametrize("reason", ["submission", "many free slots"])
async def test_other_reasons_do_not_wait_for_a_shared_poll(
    polling: Polling, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling_module, "SHARED_POLL_SECONDS", 60.0)
    polling.poll_for_free_slots(few=True)
    if reason == "submission":
        polling.poll_now()
    else:
        polling.poll_for_free_slots(few=False)
    assert await polls_within(polling, SOON_SECONDS)


async def test_the_interval_does_not_grow_while_jobs_are_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polling_module, "MIN_POLL_SECONDS", 0.01)
    polling = Polling()
    for expected in (True, True, False):
        polling.begin_poll()
        if expected:
            polling.expect_jobs()
        await polling.wait(found_jobs=False)
        assert (polling._pause > 0.01) is not expected
