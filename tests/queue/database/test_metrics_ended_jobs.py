"""Ended jobs are counted each time while they are few, and once a minute when they are many."""

from __future__ import annotations

import pytest

from siteatlas.queue.metrics import EndedJobs
from siteatlas.storage.session import AsyncSession
from tests.fixtures.records import add_job

pytestmark = pytest.mark.usefixtures("database")


async def test_only_large_numbers_are_remembered(session: AsyncSession):
    ended = EndedJobs(large=3)
    for completed in (1, 2, 3, 3, 3):
        await add_job(session, status="completed")
        await add_job(session, status="failed")
        assert await ended.count(session) == {
            "completed": completed,
            "failed": completed,
            "cancelled": 0,
        }


async def test_nothing_is_counted_while_all_numbers_are_large(session: AsyncSession):
    ended = EndedJobs(large=1)
    for _ in range(2):
        for status in ("completed", "failed", "cancelled"):
            await add_job(session, status=status)
        assert await ended.count(session) == {"completed": 1, "failed": 1, "cancelled": 1}
