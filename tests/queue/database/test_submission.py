"""Submitting sites: one active job each, however often they are submitted."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import func, select

from siteatlas.queue.fence import Priority
from siteatlas.queue.opening import report_start
from siteatlas.storage.models import LOCAL_USER_ID, Domain, Job
from siteatlas.storage.session import get_background_session
from tests.fixtures.queue import job_of, submit, take_one

pytestmark = pytest.mark.usefixtures("database")


async def count(column: object) -> int:
    async with get_background_session() as session, session.begin():
        return (await session.execute(select(func.count(column)))).scalar_one()  # type: ignore[arg-type]


@pytest.mark.criterion("job-data-kept", "owner-is-a-user")
async def test_a_submitted_site_waits_with_its_domain_limit_and_owner() -> None:
    submitted = await submit("example.com", max_pages=100)
    job = await job_of(submitted.id)
    assert (job.status, job.progress, job.attempt) == ("pending", 0.0, 0)
    assert job.result_data == {"domain": "example.com", "max_pages": 100}
    assert job.created_by == LOCAL_USER_ID
    assert job.domain_id is not None


async def test_a_second_submission_joins_the_waiting_job() -> None:
    first = await submit("example.com")
    second = await submit("https://www.example.com/")
    assert second.job_id == first.job_id
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert await count(Job.id) == 1


@pytest.mark.criterion("scalable")
async def test_fifty_submissions_at_once_make_one_job_and_one_site() -> None:
    answers = await asyncio.gather(*(submit("example.com") for _ in range(50)))
    assert len({answer.job_id for answer in answers}) == 1
    assert sum(not answer.deduplicated for answer in answers) == 1
    assert (await count(Job.id), await count(Domain.id)) == (1, 1)


async def test_a_waiting_job_takes_over_the_greater_limit() -> None:
    await submit("example.com", max_pages=100)
    assert (await submit("example.com", max_pages=500)).max_pages == 500
    assert (await submit("example.com", max_pages=50)).max_pages == 500
    assert (await submit("example.com")).max_pages is None


async def test_a_waiting_job_takes_over_the_higher_priority() -> None:
    submitted = await submit("example.com", priority=Priority.SCHEDULED)
    await submit("example.com", priority=Priority.INTERACTIVE)
    assert (await job_of(submitted.id)).priority == 0


async def test_a_running_job_is_joined_but_not_changed() -> None:
    submitted = await submit("example.com", max_pages=100)
    await take_one()
    joined = await submit("example.com", max_pages=500)
    assert (joined.job_id, joined.status, joined.max_pages) == (
        submitted.job_id,
        "processing",
        100,
    )


async def test_a_site_without_watch_is_registered_unwatched() -> None:
    await submit("example.com")
    async with get_background_session() as session, session.begin():
        domain = (await session.execute(select(Domain))).scalar_one()
    assert (domain.watched, domain.next_scan_at) == (False, None)


@pytest.mark.criterion("due-domains")
async def test_watch_makes_the_site_due_and_is_never_taken_back_by_a_plain_scan() -> None:
    await submit("example.com", watch=True)
    await submit("example.com")
    async with get_background_session() as session, session.begin():
        domain = (await session.execute(select(Domain))).scalar_one()
    assert domain.watched
    assert domain.next_scan_at is not None


async def test_documents_named_before_stay_when_a_waiting_job_is_widened_to_the_site() -> None:
    first = await submit("example.com", document="https://example.com/a.xml")
    await submit("example.com", document="https://example.com/b.xml")
    await submit("example.com")
    claim = await take_one()
    assert claim.id == first.id
    async with get_background_session() as session, session.begin():
        waiting = await report_start(session, claim, lease_seconds=60, progress=0.1)
    assert sorted(waiting) == ["https://example.com/a.xml", "https://example.com/b.xml"]
