"""A site that becomes due while a job of a user is active: its scheduled scan is the next job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import select, update

from siteatlas.processor.processing import Recounts
from siteatlas.processor.publication import record_cancellation, record_failure, return_to_queue
from siteatlas.queue.fence import Claim, Priority, SubmittedJob
from siteatlas.queue.operator_actions import remove_domain_and_jobs, retry
from siteatlas.scanner.options import ChildFilter
from siteatlas.scheduler.consumer import Rescuer
from siteatlas.scheduler.sitemap_scheduler import enqueue_due_domains
from siteatlas.settings import Settings
from siteatlas.storage.models import SYSTEM_USER_ID, Domain, Job
from siteatlas.storage.session import get_background_session
from tests.fixtures.database import is_lock_awaited, transaction
from tests.fixtures.pipeline import (
    pages,
    rows_of,
    settings_for,
    submit_server,
    urlset,
    work,
)
from tests.fixtures.queue import change, job_of, let_lease_expire, submit, take, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until
from tests.fixtures.watched_sites import SITE, cancel_job, hours_until_next, watch

pytestmark = pytest.mark.usefixtures("database")

End = Callable[[Claim], Coroutine[Any, Any, object]]
MINUTE = 0.017


async def job_of_a_user_when_due(**columns: Any) -> SubmittedJob:
    """A job of a user that waits while its site becomes due."""
    await watch(due_in=-1, **columns)
    submitted = await submit(SITE)
    assert await enqueue_due_domains(Settings()) == 0
    return submitted


async def running_job_when_due(**options: Any) -> Claim:
    """A job of a user that runs while its site becomes due."""
    await watch(due_in=3600)
    await submit(SITE, **options)
    claim = await take_one()
    await watch(due_in=-1)
    assert await enqueue_due_domains(Settings()) == 0
    return claim


async def scheduled_jobs() -> list[Job]:
    return [job for job in await rows_of(Job) if job.created_by == SYSTEM_USER_ID]


async def failure(claim: Claim) -> object:
    return await record_failure(claim, code="no_sitemap", message="None.", transient=False)


async def cancelled_return(claim: Claim) -> object:
    await change(claim.id, cancel_requested_at=claim.created_at)
    return await return_to_queue(claim)


async def rescue_of_a_cancelled_job(claim: Claim) -> None:
    await change(claim.id, cancel_requested_at=claim.created_at)
    await let_lease_expire(claim.id)
    recounts = Recounts()
    await Rescuer(recounts).rescue([claim.id], count_deaths=True)
    await recounts.finish()


ENDS = [failure, record_cancellation, cancelled_return, rescue_of_a_cancelled_job]


async def test_a_user_who_cancels_and_submits_again_does_not_delay_a_due_site() -> None:
    submitted = await job_of_a_user_when_due()
    await cancel_job(submitted.id)
    again = await submit(SITE, max_pages=1)
    assert (again.deduplicated, again.is_scheduled) == (True, True)
    (job,) = await scheduled_jobs()
    assert (job.id, job.status) == (again.id, "pending")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "options",
    [
        {"max_pages": 1},
        {"document": "https://example.com/a.xml"},
        {"child_filter": ChildFilter(include=("/blog/",))},
    ],
    ids=["limit", "document", "filter"],
)
async def test_a_running_job_that_ends_unpublished_is_followed_by_the_scheduled_scan(
    options: dict[str, Any], end: End
) -> None:
    claim = await running_job_when_due(**options)
    await end(claim)
    assert (await job_of(claim.id)).status in {"failed", "cancelled"}
    again = await submit(SITE, **options)
    assert (again.deduplicated, again.is_scheduled) == (True, True)


@pytest.mark.parametrize(("limit", "follow_ups"), [(2, 1), (None, 0)])
async def test_a_published_scan_is_followed_by_the_scheduled_one_unless_it_counts_as_that(
    limit: int | None, follow_ups: int
) -> None:
    async def becomes_due(request: web.BaseRequest) -> str:
        await watch(request.host, due_in=-1)
        assert await enqueue_due_domains(Settings()) == 0
        return urlset(pages("a", 5)).replace("{base}", f"http://{request.host}")

    async with SiteServer({"/sitemap.xml": becomes_due}) as server:
        await watch(server.base, due_in=3600)
        submitted = await submit_server(server, max_pages=limit)
        await work(settings_for(server), limit=1)
        assert (await job_of(submitted.id)).status == "completed"
        assert await hours_until_next(server.host_port) == pytest.approx(24, abs=0.1)
    assert len(await scheduled_jobs()) == follow_ups


async def test_a_follow_up_is_what_the_schedule_would_have_queued() -> None:
    base = "https://example.com/"
    submitted = await job_of_a_user_when_due(max_pages=7, base_url=base)
    await cancel_job(submitted.id)
    (job,) = await scheduled_jobs()
    assert (job.priority, job.max_attempts, job.dedup_key) == (Priority.SCHEDULED, 5, SITE)
    assert job.result_data == {"domain": SITE, "max_pages": 7}
    assert job.job_metadata == {"base_url": base, "document": None}
    assert [job.domain_id] == [site.id for site in await rows_of(Domain)]


async def test_a_site_that_is_not_due_is_not_queued_when_a_job_of_a_user_ends() -> None:
    await watch(due_in=5, scan_interval_hours=MINUTE)
    for _ in range(3):
        await cancel_job((await submit(SITE)).id)
    assert await enqueue_due_domains(Settings()) == 0
    assert await scheduled_jobs() == []


async def test_a_user_who_retries_and_cancels_a_job_gets_one_follow_up_for_each_due_time() -> None:
    submitted = await job_of_a_user_when_due()
    for _ in range(3):
        await cancel_job(submitted.id)
        for job in await scheduled_jobs():
            await cancel_job(job.id)
        async with transaction() as session:
            await retry(session, submitted.id)
    assert len(await scheduled_jobs()) == 1
    assert await hours_until_next() == pytest.approx(24, abs=0.1)


async def test_a_job_that_was_retried_after_its_site_was_deleted_has_a_follow_up_too() -> None:
    submitted = await submit(SITE)
    async with transaction() as session:
        await remove_domain_and_jobs(session, SITE)
    await watch(due_in=-1)
    async with transaction() as session:
        await retry(session, submitted.id)
    assert await enqueue_due_domains(Settings()) == 0
    await cancel_job(submitted.id)
    assert len(await scheduled_jobs()) == 1


async def test_a_site_that_is_due_again_while_the_same_job_is_active_gets_one_follow_up() -> None:
    submitted = await job_of_a_user_when_due()
    await watch(due_in=-1)
    assert await enqueue_due_domains(Settings()) == 0
    await cancel_job(submitted.id)
    assert len(await scheduled_jobs()) == 1


@pytest.mark.parametrize("columns", [{"watched": False, "next_scan_at": None}, {"paused": True}])
async def test_a_site_that_is_no_longer_scheduled_gets_no_follow_up(
    columns: dict[str, Any],
) -> None:
    submitted = await job_of_a_user_when_due()
    async with transaction() as session:
        await session.execute(update(Domain).values(**columns))
    await cancel_job(submitted.id)
    assert await scheduled_jobs() == []


async def test_a_site_that_is_deleted_gets_no_follow_up() -> None:
    submitted = await job_of_a_user_when_due()
    async with transaction() as session:
        await remove_domain_and_jobs(session, SITE)
    assert (await job_of(submitted.id)).status == "cancelled"
    assert await scheduled_jobs() == []


async def release_of_an_orphan(claim: Claim) -> None:
    await change(claim.id, cancel_requested_at=claim.created_at)
    recounts = Recounts()
    assert await Rescuer(recounts).release_orphans("worker-a", [])
    await recounts.finish()


@pytest.mark.parametrize(
    "end", [record_cancellation, failure, cancelled_return, release_of_an_orphan]
)
async def test_the_site_is_locked_before_the_running_job_that_ends(end: End) -> None:
    claim = await running_job_when_due(document="https://example.com/a.xml")
    await _require_lock_order(end(claim))


async def test_the_site_is_locked_before_the_pending_job_that_is_cancelled() -> None:
    submitted = await job_of_a_user_when_due()
    await _require_lock_order(cancel_job(submitted.id))


async def _require_lock_order(end: Coroutine[Any, Any, object]) -> None:
    """Fail if the end of a job locks the job while it waits for the site."""
    async with asyncio.TaskGroup() as group, get_background_session() as other, other.begin():
        await other.execute(select(Domain).with_for_update())
        group.create_task(end)
        await wait_until(is_lock_awaited)
        await other.execute(select(Job).with_for_update(nowait=True))
    assert len(await scheduled_jobs()) == 1


@pytest.mark.parametrize("order", [1, -1])
async def test_due_sites_lock_running_jobs_in_the_order_of_heartbeats(order: int) -> None:
    sites = ["a.example.com", "b.example.com"]
    for site in sites:
        await submit(site)
    first, second = await take(2)
    for site, seconds in zip(sites[::order], (-20, -10), strict=True):
        await watch(site, due_in=seconds)
    async with asyncio.TaskGroup() as group, get_background_session() as other, other.begin():
        await other.execute(select(Job).where(Job.id == first.id).with_for_update())
        group.create_task(enqueue_due_domains(Settings()))
        await wait_until(is_lock_awaited)
        await other.execute(select(Job).where(Job.id == second.id).with_for_update(nowait=True))
    for claim in (first, second):
        assert ((await job_of(claim.id)).job_metadata or {})["follow_up"]


async def test_a_job_that_is_retried_by_hand_has_no_follow_up_of_earlier() -> None:
    submitted = await job_of_a_user_when_due()
    async with transaction() as session:
        await session.execute(update(Domain).values(paused=True))
    await cancel_job(submitted.id)
    async with transaction() as session:
        await session.execute(update(Domain).values(paused=False))
        await retry(session, submitted.id)
    await cancel_job(submitted.id)
    assert await scheduled_jobs() == []
