"""Holding and ending a job: the fence decides who may write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, select

from siteatlas.errors import JobCancelled, LeaseLost
from siteatlas.queue.completion import complete, fail, release
from siteatlas.queue.fence import Claim, heartbeat, report_progress
from siteatlas.queue.operator_actions import cancel
from siteatlas.queue.rescues import release_orphans
from siteatlas.storage.models import JobAttempt
from siteatlas.storage.session import AsyncSession, get_background_session
from tests.fixtures.queue import (
    LEASE,
    change,
    job_of,
    let_lease_expire,
    rescue_all,
    submit,
    take_one,
)

pytestmark = pytest.mark.usefixtures("database")

Requeue = Callable[[AsyncSession, Claim], Awaitable[Any]]


@pytest.mark.criterion("status-life", "result-stored", "processor-writes-all")
async def test_completing_stores_the_result_and_the_attempt() -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await complete(session, claim, {"url_count": 3})
    job = await job_of(submitted.id)
    assert (job.status, job.progress, job.result_data) == ("completed", 1.0, {"url_count": 3})
    assert job.finished_at is not None
    async with get_background_session() as session, session.begin():
        attempt = (await session.execute(select(JobAttempt))).scalar_one()
    assert (attempt.outcome, attempt.fence, attempt.worker_id) == ("completed", 1, "worker-a")


@pytest.mark.criterion("scheduler-sets-no-status", "processor-writes-all")
async def test_a_holder_whose_job_was_taken_over_can_write_nothing() -> None:
    submitted = await submit("example.com")
    old = await take_one("worker-a")
    await let_lease_expire(submitted.id)
    await rescue_all()
    new = await take_one("worker-b")
    for attempt in (
        lambda s: complete(s, old, {}),
        lambda s: fail(s, old, code="x", message="x"),
        lambda s: release(s, old),
        lambda s: report_progress(s, old, lease_seconds=LEASE, progress=0.9),
    ):
        with pytest.raises(LeaseLost):
            async with get_background_session() as session, session.begin():
                await attempt(session)
    async with get_background_session() as session, session.begin():
        await complete(session, new, {"by": "worker-b"})
    assert (await job_of(submitted.id)).result_data == {"by": "worker-b"}


async def test_a_released_and_reclaimed_job_refuses_the_old_holder() -> None:
    submitted = await submit("example.com")
    old = await take_one("worker-a")
    async with get_background_session() as session, session.begin():
        await release(session, old)
    job = await job_of(submitted.id)
    assert (job.status, job.attempt, job.fence) == ("pending", 0, 1)
    new = await take_one("worker-b")
    assert (new.attempt, new.fence) == (1, 2)
    with pytest.raises(LeaseLost):
        async with get_background_session() as session, session.begin():
            await complete(session, old, {})


@pytest.mark.criterion("progress-tracked")
async def test_progress_never_goes_back() -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    for progress in (0.6, 0.2):
        async with get_background_session() as session, session.begin():
            await report_progress(session, claim, lease_seconds=LEASE, progress=progress)
    assert (await job_of(submitted.id)).progress == pytest.approx(0.6)


async def expire_and_rescue(_session: AsyncSession, claim: Claim) -> None:
    await let_lease_expire(claim.id)
    await rescue_all()


@pytest.mark.parametrize(
    "requeue",
    [
        pytest.param(release, id="released"),
        pytest.param(partial(release, snooze=True), id="snoozed"),
        pytest.param(partial(fail, code="x", message="x", transient=True), id="retried"),
        pytest.param(expire_and_rescue, id="rescued"),
        pytest.param(lambda s, claim: release_orphans(s, "worker-a", []), id="disowned"),
    ],
)
async def test_a_job_that_will_resume_its_scan_keeps_its_progress(requeue: Requeue) -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await report_progress(session, claim, lease_seconds=LEASE, progress=0.6)
    async with get_background_session() as session, session.begin():
        await requeue(session, claim)
    job = await job_of(submitted.id)
    assert (job.status, job.progress) == ("pending", 0.6)


@pytest.mark.criterion("status-life", "error-recorded")
async def test_a_permanent_failure_ends_the_job_with_its_code() -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await fail(session, claim, code="no_sitemap", message="None found.")
    job = await job_of(submitted.id)
    assert (job.status, job.error_code, job.error) == ("failed", "no_sitemap", "None found.")


@pytest.mark.criterion("error-recorded")
async def test_a_transient_failure_waits_for_the_next_attempt_with_the_error_visible() -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await fail(session, claim, code="timeout", message="Too late.", transient=True)
    job = await job_of(submitted.id)
    assert (job.status, job.error_code, job.attempt) == ("pending", "timeout", 1)
    assert 10 < (job.run_at - job.updated_at).total_seconds() < 20


@pytest.mark.criterion("status-life", "error-recorded")
async def test_a_job_that_is_completed_shows_no_error_of_an_earlier_attempt() -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await fail(session, claim, code="timeout", message="Too late.", transient=True)
    await change(submitted.id, run_at=func.now())
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await complete(session, claim, {"url_count": 3})
    job = await job_of(submitted.id)
    assert (job.status, job.attempt) == ("completed", 2)
    assert (job.error, job.error_code) == (None, None)


@pytest.mark.criterion("status-life")
async def test_the_last_transient_failure_is_final() -> None:
    submitted = await submit("example.com", max_attempts=1)
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await fail(session, claim, code="timeout", message="Too late.", transient=True)
    assert (await job_of(submitted.id)).status == "failed"


async def test_the_heartbeat_renews_what_is_ours_and_names_what_was_cancelled() -> None:
    for site in ("a.example.com", "b.example.com", "c.example.com"):
        await submit(site)
    ours, asked, lost = [await take_one() for _ in range(3)]
    await let_lease_expire(lost.id)
    await rescue_all()
    async with get_background_session() as session, session.begin():
        await cancel(session, asked.id)
    async with get_background_session() as session, session.begin():
        kept, cancelled = await heartbeat(session, [ours, asked, lost], LEASE)
    assert kept == {ours.id, asked.id}
    assert cancelled == {asked.id}


async def test_a_running_job_learns_from_the_fence_that_it_was_cancelled() -> None:
    await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await cancel(session, claim.id)
    with pytest.raises(JobCancelled):
        async with get_background_session() as session, session.begin():
            await report_progress(session, claim, lease_seconds=LEASE, progress=0.5)


async def test_a_cancelled_job_that_fails_ends_as_cancelled() -> None:
    submitted = await submit("example.com")
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await cancel(session, claim.id)
    async with get_background_session() as session, session.begin():
        await fail(session, claim, code="timeout", message="Too late.", transient=True)
    job = await job_of(submitted.id)
    assert (job.status, job.error_code) == ("cancelled", None)
