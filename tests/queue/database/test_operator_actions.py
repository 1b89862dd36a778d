"""What a person may do to a job, and what is refused."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import func

from siteatlas.errors import (
    InputError,
    JobActive,
    JobDataInvalid,
    JobNotFound,
    JobStateConflict,
)
from siteatlas.queue.completion import cancel_running, complete, fail
from siteatlas.queue.fence import report_progress
from siteatlas.queue.job_service import job_service
from siteatlas.queue.operator_actions import cancel, retry
from siteatlas.storage.session import get_background_session
from tests.fixtures.queue import LEASE, change, job_of, submit, take_one

pytestmark = pytest.mark.usefixtures("database")


async def failed_job() -> int:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await fail(session, claim, code="no_sitemap", message="None found.")
    return submitted.id


async def test_a_waiting_job_is_cancelled_at_once() -> None:
    submitted = await submit("example.com")
    async with get_background_session() as session, session.begin():
        assert await cancel(session, submitted.id) == "cancelled"
    assert (await job_of(submitted.id)).finished_at is not None


async def test_cancelling_twice_is_the_same_as_once() -> None:
    submitted = await submit("example.com")
    for _ in range(2):
        async with get_background_session() as session, session.begin():
            assert await cancel(session, submitted.id) == "cancelled"


async def test_a_completed_job_cannot_be_cancelled() -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await complete(session, claim, {})
    with pytest.raises(JobStateConflict):
        async with get_background_session() as session, session.begin():
            await cancel(session, submitted.id)


async def test_an_unknown_job_cannot_be_cancelled_or_retried() -> None:
    for verb in (cancel, retry):
        with pytest.raises(JobNotFound):
            async with get_background_session() as session, session.begin():
                await verb(session, 4711)


async def test_a_failed_job_is_retried_with_all_its_attempts() -> None:
    job_id = await failed_job()
    async with get_background_session() as session, session.begin():
        await retry(session, job_id)
    job = await job_of(job_id)
    assert (job.status, job.attempt, job.fence) == ("pending", 0, 1)
    assert (job.started_at, job.worker_id) == (None, None)


async def test_a_retry_is_refused_while_a_job_of_the_site_is_active() -> None:
    job_id = await failed_job()
    await submit("example.com")
    with pytest.raises(JobActive):
        async with get_background_session() as session, session.begin():
            await retry(session, job_id)
    assert (await job_of(job_id)).status == "failed"


@pytest.mark.criterion("pending-query")
async def test_pending_jobs_are_found_oldest_first_without_being_claimed() -> None:
    first, second = await submit("a.example.com"), await submit("b.example.com")
    async with get_background_session() as session, session.begin():
        jobs = await job_service.get_pending_jobs(session, job_type="sitemap", limit=10)
    assert [job.id for job in jobs] == [first.id, second.id]
    assert (await job_of(first.id)).status == "pending"


@pytest.mark.criterion("call-signatures")
async def test_the_older_front_creates_a_job_with_the_given_id() -> None:
    job_id = "b4935fac-7e79-4a70-9f79-c76d6496111b"
    data = {
        "job_id": job_id,
        "job_type": "sitemap",
        "status": "pending",
        "created_by": None,
        "result_data": {"domain": "example.com", "max_pages": 100},
    }
    async with get_background_session() as session, session.begin():
        await job_service.create(session, data)
        job = await job_service.get_by_id(session, job_id)
    assert job.status == "pending"


async def test_the_older_front_refuses_a_job_without_a_site() -> None:
    with pytest.raises(JobDataInvalid):
        async with get_background_session() as session, session.begin():
            await job_service.create(session, {"result_data": {}})


@pytest.mark.criterion("script-reset")
async def test_a_status_is_not_set_by_hand_while_a_worker_holds_the_job() -> None:
    submitted = await submit("example.com")
    await take_one()
    with pytest.raises(JobStateConflict):
        async with get_background_session() as session, session.begin():
            await job_service.update_status(session, submitted.id, "failed")


@pytest.mark.criterion("older-status-words")
async def test_setting_a_status_by_hand_accepts_the_older_words() -> None:
    submitted = await submit("example.com")
    async with get_background_session() as session, session.begin():
        await job_service.update_status(session, submitted.id, "complete", progress=1.0)
    assert (await job_of(submitted.id)).status == "completed"


@pytest.mark.criterion("status-life")
@pytest.mark.parametrize("status", ["failed", "completed", "cancelled"])
async def test_a_job_that_is_ended_by_hand_has_an_end_time(status: str) -> None:
    submitted = await submit("example.com")
    async with get_background_session() as session, session.begin():
        await job_service.update_status(session, submitted.id, status)
    job = await job_of(submitted.id)
    assert job.status == status
    assert job.finished_at is not None


@pytest.mark.criterion("call-signatures")
async def test_a_job_cannot_be_set_to_processing_by_hand() -> None:
    submitted = await submit("example.com")
    with pytest.raises(JobStateConflict):
        async with get_background_session() as session, session.begin():
            await job_service.update_status(session, submitted.id, "processing")


SCANNED = {"domain": "example.com", "max_pages": 7, "url_count": 3, "partial": False}


async def test_a_job_that_is_retried_starts_without_progress_error_and_result() -> None:
    job_id = await failed_job()
    await change(job_id, progress=0.6, result_data=SCANNED)
    async with get_background_session() as session, session.begin():
        await retry(session, job_id)
    job = await job_of(job_id)
    assert (job.status, job.progress, job.error, job.error_code) == ("pending", 0.0, None, None)
    assert job.result_data == {"domain": "example.com", "max_pages": 7}


async def test_a_job_that_was_cancelled_while_running_is_retried_without_its_progress() -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await report_progress(session, claim, lease_seconds=LEASE, progress=0.5)
    for step in (partial(cancel, job_id=claim.id), partial(cancel_running, claim=claim)):
        async with get_background_session() as session, session.begin():
            await step(session)
    stopped = await job_of(submitted.id)
    assert (stopped.status, stopped.progress) == ("cancelled", 0.5)
    async with get_background_session() as session, session.begin():
        await retry(session, submitted.id)
    job = await job_of(submitted.id)
    assert (job.status, job.progress, job.cancel_requested_at) == ("pending", 0.0, None)


@pytest.mark.criterion("status-life")
async def test_a_job_that_is_set_back_by_hand_starts_without_progress_error_and_result() -> None:
    submitted = await submit("example.com", max_pages=7)
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await complete(session, claim, SCANNED)
    await change(submitted.id, cancel_requested_at=func.now(), error_code="no_sitemap")
    async with get_background_session() as session, session.begin():
        await job_service.update_status(session, submitted.id, "pending")
    job = await job_of(submitted.id)
    assert (job.status, job.progress, job.error_code) == ("pending", 0.0, None)
    assert job.result_data == {"domain": "example.com", "max_pages": 7}
    assert (job.started_at, job.finished_at, job.cancel_requested_at) == (None, None, None)


async def test_a_malformed_job_id_is_refused_with_the_forms_that_are_known() -> None:
    with pytest.raises(InputError, match=r"\bnumber\b.*\bUUID\b"):
        async with get_background_session() as session, session.begin():
            await job_service.get_by_id(session, "latest")


@pytest.mark.criterion("pending-query")
async def test_pending_jobs_are_listed_by_type_and_up_to_the_limit() -> None:
    ours = [await submit(f"{name}.example.com") for name in "abc"]
    async with get_background_session() as session, session.begin():
        foreign = await job_service.create(session, {"job_type": "email", "result_data": {}})
        listed = await job_service.get_pending_jobs(session)
        two = await job_service.get_pending_jobs(session, job_type="sitemap", limit=2)
        others = await job_service.get_pending_jobs(session, job_type="email")
    assert [job.id for job in listed] == [job.id for job in ours]
    assert [job.id for job in two] == [job.id for job in ours[:2]]
    assert [job.id for job in others] == [foreign.id]
