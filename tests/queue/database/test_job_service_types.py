"""The jobs table may be shared: jobs of other types are never touched, counted or pruned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func

from siteatlas.errors import InputError, JobNotFound
from siteatlas.queue.claims import claim_one
from siteatlas.queue.job_service import job_service
from siteatlas.queue.metrics import EndedJobs, queue_load
from siteatlas.queue.operator_actions import cancel, retry
from siteatlas.queue.rescues import release_orphans
from siteatlas.queue.retention import prune_jobs
from siteatlas.queue.views import count_jobs_by_status, find_job, list_jobs
from siteatlas.storage.models import LOCAL_USER_ID, Job
from siteatlas.storage.session import AsyncSession, get_background_session
from tests.fixtures.queue import change, job_of, rescue_all, submit, take
from tests.fixtures.records import add_domain, add_job

pytestmark = pytest.mark.usefixtures("database")
FOREIGN = {"to": "someone@example.com"}


async def foreign_job(**columns: Any) -> int:
    """A row of another program, as its own insert leaves it."""
    values = {"job_type": "email", "dedup_key": None, "result_data": FOREIGN} | columns
    async with get_background_session() as session, session.begin():
        return (await add_job(session, **values)).id


@pytest.mark.criterion("pending-query")
async def test_a_job_of_another_type_is_not_claimed() -> None:
    foreign = await foreign_job()
    ours = await submit("example.com")
    assert [claim.id for claim in await take(10)] == [ours.id]
    async with get_background_session() as session, session.begin():
        assert await claim_one(session, foreign, "worker-a", 60) is None
    job = await job_of(foreign)
    assert (job.status, job.fence, job.attempt, job.worker_id) == ("pending", 0, 0, None)


async def test_a_job_of_another_type_is_neither_rescued_nor_disowned() -> None:
    silent = {"status": "processing", "worker_id": "worker-a", "fence": 1, "attempt": 1}
    foreign = await foreign_job(**silent)
    await change(foreign, lease_until=func.now() - timedelta(hours=1))
    assert await rescue_all() == []
    async with get_background_session() as session, session.begin():
        assert await release_orphans(session, "worker-a", []) == []
    job = await job_of(foreign)
    assert (job.status, job.attempt, job.rescues) == ("processing", 1, 0)


async def test_jobs_of_other_types_are_not_counted_or_listed(session: AsyncSession) -> None:
    domain = await add_domain(session)
    ours = await add_job(session, domain)
    for status in ("pending", "processing", "failed"):
        old = func.now() - timedelta(days=1)
        await add_job(session, domain, job_type="email", status=status, run_at=old)
    assert sum((await count_jobs_by_status(session)).values()) == 1
    load = await queue_load(session, EndedJobs())
    assert {status: number for status, number in load.jobs.items() if number} == {"pending": 1}
    assert load.oldest_pending_seconds < 3600
    page = await list_jobs(session, domain="example.com")
    assert [job.id for job in page.items] == [ours.id]


async def test_an_old_job_of_another_type_is_not_pruned() -> None:
    foreign = await foreign_job(status="completed")
    await change(foreign, finished_at=func.now() - timedelta(days=400))
    async with get_background_session() as session, session.begin():
        assert await prune_jobs(session) == 0
    assert (await job_of(foreign)).status == "completed"


async def test_a_job_of_another_type_cannot_be_steered_by_hand() -> None:
    failed, waiting = await foreign_job(status="failed"), await foreign_job()
    for verb, job_id in ((retry, failed), (cancel, waiting)):
        with pytest.raises(JobNotFound):
            async with get_background_session() as session, session.begin():
                await verb(session, job_id)
    with pytest.raises(JobNotFound):
        async with get_background_session() as session, session.begin():
            await find_job(session, str(waiting))
    assert ((await job_of(failed)).status, (await job_of(waiting)).status) == ("failed", "pending")


async def test_create_keeps_the_type_and_the_data_of_a_job() -> None:
    data = {"job_type": "email", "created_by": str(LOCAL_USER_ID), "result_data": FOREIGN}
    async with get_background_session() as session, session.begin():
        created = await job_service.create(session, data)
        (waiting,) = await job_service.get_pending_jobs(session, job_type="email")
        assert await job_service.get_pending_jobs(session) == []
    assert (waiting.id, waiting.job_type, waiting.result_data) == (created.id, "email", FOREIGN)


async def test_jobs_of_other_types_do_not_stand_in_the_way_of_a_scan() -> None:
    data = {"job_type": "email", "result_data": {"domain": "example.com"}}
    async with get_background_session() as session, session.begin():
        foreign = await job_service.create(session, data)
    ours = await submit("example.com")
    assert not ours.deduplicated
    assert ours.id != foreign.id


@pytest.mark.parametrize("status", ["completed", "complete", "processing", "failed"])
async def test_create_refuses_a_status_other_than_pending(status: str) -> None:
    data = {"status": status, "result_data": {"domain": "example.com"}}
    with pytest.raises(InputError, match=rf"\b{status}\b"):
        async with get_background_session() as session, session.begin():
            await job_service.create(session, data)


@pytest.mark.parametrize("name", ["created_by", "job_id", "domain_id"])
async def test_create_refuses_an_id_that_is_no_uuid(name: str) -> None:
    data = {name: "scheduler", "result_data": {"domain": "example.com"}}
    with pytest.raises(InputError, match=rf"^{name} 'scheduler' .*\bUUID\b"):
        async with get_background_session() as session, session.begin():
            await job_service.create(session, data)


@pytest.mark.criterion("job-dictionary")
async def test_create_refuses_an_owner_that_is_no_user(session: AsyncSession) -> None:
    data = {"created_by": str(uuid4()), "result_data": {"domain": "example.com"}}
    with pytest.raises(InputError, match="is not a user"):
        await job_service.create(session, data)


async def test_a_job_is_a_dictionary_of_its_columns(session: AsyncSession) -> None:
    job = await add_job(session, await add_domain(session))
    as_dict = job.to_dict()
    assert set(as_dict) == {column.name for column in Job.__table__.columns}
    assert as_dict["job_id"] == str(job.job_id)
    assert as_dict["created_at"] == job.created_at.isoformat()
    assert (as_dict["status"], as_dict["finished_at"]) == ("pending", None)
