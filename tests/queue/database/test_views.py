"""Views of the queue that people and programs watch: counts, attempts and workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import InputError
from siteatlas.queue.fence import WorkerReport, report_worker
from siteatlas.queue.views import (
    any_worker_alive,
    count_jobs_by_status,
    find_job,
    list_attempts,
    list_jobs,
    list_workers,
)
from siteatlas.storage.models import AttemptOutcome, Job, JobAttempt, Worker
from tests.fixtures.records import add_domain, add_job


async def test_every_state_is_counted_also_the_empty_ones(session: AsyncSession):
    domain = await add_domain(session)
    for status in ("pending", "failed", "failed"):
        await add_job(session, domain, status=status)
    assert await count_jobs_by_status(session) == {
        "pending": 1,
        "processing": 0,
        "completed": 0,
        "failed": 2,
        "cancelled": 0,
    }


async def test_a_job_read_again_in_one_session_shows_what_changed(session: AsyncSession):
    job = await add_job(session)
    await session.execute(
        update(Job).values(progress=0.5).execution_options(synchronize_session=False)
    )
    assert (await find_job(session, str(job.id))).progress == 0.5


async def test_attempts_come_latest_first(session: AsyncSession):
    job = await add_job(session)
    for fence, outcome in ((1, AttemptOutcome.RETRIED), (2, AttemptOutcome.FAILED)):
        session.add(JobAttempt(job_id=job.id, fence=fence, attempt=fence, outcome=outcome))
    await session.flush()
    outcomes = [attempt.outcome for attempt in await list_attempts(session, job.id)]
    assert outcomes == ["failed", "retried"]


async def test_an_unknown_status_is_refused(session: AsyncSession):
    with pytest.raises(InputError):
        await list_jobs(session, status="done")


async def test_workers_are_listed_with_their_age(session: AsyncSession):
    await report_worker(session, WorkerReport("a", "host", 1, "0.1", slots=4, running=2))
    (worker,) = await list_workers(session)
    assert (worker.id, worker.slots, worker.running) == ("a", 4, 2)
    assert 0 <= worker.seconds_since_seen < 30


async def test_a_worker_is_alive_for_a_minute(session: AsyncSession):
    assert not await any_worker_alive(session)
    await report_worker(session, WorkerReport("a", "host", 1, "0.1", slots=4, running=2))
    assert await any_worker_alive(session)
    long_ago = datetime.now(UTC) - timedelta(seconds=61)
    await session.execute(update(Worker).values(last_seen_at=long_ago))
    assert not await any_worker_alive(session)
