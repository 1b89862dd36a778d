"""Jobs that wait for their site are snoozed only if others need their place."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func

from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.claims import has_due_jobs
from siteatlas.scheduler.consumer import Consumer
from siteatlas.scheduler.slots import MIN_STAY_SECONDS, RunningJob, StopReason
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID
from siteatlas.storage.session import get_background_session
from tests.fixtures.queue import Priority, change, submit
from tests.scheduler.test_slots import claim

pytestmark = pytest.mark.usefixtures("database")


def consumer_with_all_waiting() -> tuple[Consumer, list[RunningJob]]:
    """A worker in which no more jobs can wait; all of them have waited for long."""
    consumer = Consumer(Settings(concurrency=2), EgressPolicy.from_text(""))
    jobs = [RunningJob(claim(priority=Priority.BATCH)) for _ in range(16)]
    for job in jobs:
        job.since -= MIN_STAY_SECONDS
        consumer._slots.add_waiting(job)
    return consumer, jobs


def snoozed(jobs: list[RunningJob]) -> int:
    return sum(job.stop_reason is StopReason.SNOOZED for job in jobs)


async def test_waiting_jobs_stay_while_no_other_job_is_due():
    later = await submit("https://later.example", priority=Priority.BATCH)
    await change(later.id, run_at=func.now() + timedelta(minutes=1))
    consumer, jobs = consumer_with_all_waiting()
    assert await consumer.claim_jobs(2) == 0
    assert snoozed(jobs) == 0
    await change(later.id, run_at=func.now())
    assert await consumer.claim_jobs(2) == 0
    assert snoozed(jobs) == 2


async def test_a_due_job_of_a_user_or_site_at_its_limit_snoozes_nobody():
    await submit("https://example.com", priority=Priority.BATCH)
    async with get_background_session() as session, session.begin():
        assert await has_due_jobs(session, "worker-a")
        assert not await has_due_jobs(session, "worker-a", users_at_limit={LOCAL_USER_ID})
        assert not await has_due_jobs(session, "worker-a", sites_at_limit={"example.com"})
