"""The whole site is submitted while a job reads one document of it: both are read, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import func, update

from siteatlas.queue.completion import complete, fail, release
from siteatlas.queue.fence import Claim, NewJob, Priority, SubmittedJob, report_progress
from siteatlas.queue.operator_actions import cancel
from siteatlas.queue.submission import create_many
from siteatlas.scheduler.sitemap_scheduler import TickReport, enqueue_due_domains
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID, Domain, JobAttempt, JobStatus, Scan, Sitemap
from siteatlas.storage.session import AsyncSession
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import pages, rows_of, settings_for, urlset, work
from tests.fixtures.queue import LEASE, job_of, submit, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")

DOCUMENT = "https://example.com/c.xml"


@dataclass
class ReadingSite:
    """A site of which one document is being read until `go_on` is set."""

    server: SiteServer
    submitted: SubmittedJob
    working: asyncio.Task[TickReport]
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def finish(self) -> None:
        self.go_on.set()
        await self.working


@asynccontextmanager
async def reading_one_document(answer: str | web.Response) -> AsyncIterator[ReadingSite]:
    go_on = asyncio.Event()

    async def late(request: web.BaseRequest) -> str | web.Response:
        await go_on.wait()
        if isinstance(answer, str):
            return answer.replace("{base}", f"http://{request.host}")
        return web.Response(status=answer.status)

    site: dict[str, Any] = {
        "/robots.txt": "Sitemap: {base}/a.xml\nSitemap: {base}/b.xml\n",
        "/a.xml": urlset(pages("a", 3)),
        "/b.xml": urlset(pages("b", 2)),
        "/c.xml": late,
    }
    async with SiteServer(site) as server:
        url = f"{server.base}/c.xml"
        submitted = await submit(url, document=url)
        working = asyncio.create_task(work(settings_for(server)))
        await wait_until(lambda: "/c.xml" in server.paths)
        yield ReadingSite(server, submitted, working, go_on)


async def documents() -> set[str]:
    return {s.url.rsplit("/", 1)[1] for s in await rows_of(Sitemap) if s.status == "completed"}


async def outcomes() -> list[tuple[str, str | None]]:
    attempts = sorted(await rows_of(JobAttempt), key=lambda attempt: attempt.fence)
    return [(attempt.outcome, attempt.error_code) for attempt in attempts]


async def test_the_job_reads_its_document_and_then_the_whole_site() -> None:
    async with reading_one_document(urlset(pages("c", 4))) as site:
        joined = await submit(site.server.base)
        assert (joined.id, joined.deduplicated) == (site.submitted.id, True)
        assert joined.document is None
        await site.finish()
    job = await job_of(joined.id)
    assert (job.status, job.attempt, job.progress) == ("completed", 1, 1.0)
    assert await documents() == {"a.xml", "b.xml", "c.xml"}
    assert await outcomes() == [("released", "widened"), ("completed", None)]
    ((scan,), (domain,)) = (await rows_of(Scan), await rows_of(Domain))
    assert (scan.state, scan.url_count) == ("published", 9)
    assert (domain.last_scan_status, domain.url_count) == ("completed", 9)


async def test_a_document_that_cannot_be_read_does_not_end_the_scan_of_the_site() -> None:
    async with reading_one_document(web.Response(status=404)) as site:
        joined = await submit(site.server.base)
        await site.finish()
    assert (await job_of(joined.id)).status == "completed"
    assert await documents() == {"a.xml", "b.xml"}
    assert await outcomes() == [("retried", "http_not_found"), ("completed", None)]


async def running_document(**options: object) -> int:
    return (await submit(DOCUMENT, document=DOCUMENT, **options)).id


async def test_the_failure_that_ends_the_last_attempt_does_not_count_for_the_site() -> None:
    job_id = await running_document(max_attempts=1)
    claim = await take_one()
    await submit("example.com")
    async with transaction() as session:
        status = await fail(session, claim, code="http_not_found", message="404.")
    job = await job_of(job_id)
    assert (status, job.status, job.attempt, job.error_code) == ("pending", "pending", 0, None)
    assert (job.finished_at, (await take_one()).document) == (None, None)


async def test_a_greater_limit_is_kept_while_the_running_job_reports_progress() -> None:
    await running_document(max_pages=10)
    claim = await take_one()
    await submit("example.com", max_pages=50)
    async with transaction() as session:
        told = {"domain": "example.com", "url_count": 7}
        await report_progress(session, claim, lease_seconds=LEASE, progress=0.5, result_data=told)
        assert await complete(session, claim, {"domain": "example.com"}) == "pending"
    again = await take_one()
    assert (again.document, again.max_pages, again.base_url) == (None, 50, "example.com/")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(partial(complete, result_data={"domain": "example.com"}), id="completed"),
        pytest.param(partial(fail, code="http_not_found", message="404."), id="failed"),
        pytest.param(release, id="released"),
    ],
)
async def test_the_whole_site_starts_without_the_progress_of_its_document(
    end: Callable[[AsyncSession, Claim], Awaitable[JobStatus]],
) -> None:
    job_id = await running_document()
    claim = await take_one()
    await submit("example.com")
    async with transaction() as session:
        await report_progress(session, claim, lease_seconds=LEASE, progress=0.95)
    assert (await job_of(job_id)).progress == 0.95
    async with transaction() as session:
        assert await end(session, claim) == "pending"
    assert (await job_of(job_id)).progress == 0


async def test_a_waiting_job_that_gets_the_whole_site_starts_without_progress() -> None:
    job_id = await running_document()
    claim = await take_one()
    async with transaction() as session:
        await report_progress(session, claim, lease_seconds=LEASE, progress=0.5)
        await release(session, claim)
    await submit(DOCUMENT, document=DOCUMENT)
    assert (await job_of(job_id)).progress == 0.5
    await submit("example.com")
    assert (await job_of(job_id)).progress == 0


async def test_a_widened_job_that_was_cancelled_does_not_go_on() -> None:
    job_id = await running_document()
    claim = await take_one()
    await submit("example.com")
    async with transaction() as session:
        await cancel(session, job_id)
        assert await complete(session, claim, {"domain": "example.com"}) == "cancelled"
    assert (await job_of(job_id)).finished_at is not None


async def test_a_batch_widens_a_running_job_too() -> None:
    job_id = await running_document()
    await take_one()
    (domain,) = await rows_of(Domain)
    whole = NewJob(
        domain="example.com",
        base_url="example.com",
        created_by=LOCAL_USER_ID,
        domain_id=domain.id,
        priority=Priority.BATCH,
    )
    async with transaction() as session:
        answers = await create_many(session, [whole])
    assert (answers["example.com"].id, answers["example.com"].document) == (job_id, None)
    assert ((await job_of(job_id)).job_metadata or {})["documents"] == [DOCUMENT]


async def test_a_running_job_of_one_document_is_joined_unchanged_by_the_same_document() -> None:
    await running_document()
    claim = await take_one()
    await submit(DOCUMENT, document=DOCUMENT)
    async with transaction() as session:
        assert await complete(session, claim, {}) == "completed"


async def test_the_schedule_leaves_a_running_job_of_one_document_as_it_is() -> None:
    await submit("example.com", watch=True)
    async with transaction() as session:
        await cancel(session, 1)
    job_id = await running_document()
    await take_one()
    async with transaction() as session:
        await session.execute(update(Domain).values(next_scan_at=func.now()))
    assert await enqueue_due_domains(Settings()) == 0
    assert ((await job_of(job_id)).job_metadata or {})["document"] == DOCUMENT
