"""A job that is rescued continues where it stopped, and ends with the same rows."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from aiohttp import web
from sqlalchemy import select, text

from siteatlas.errors import EgressDenied, SiteatlasError
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.processing import Processor, process_domain_with_own_session
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.operator_actions import cancel, retry
from siteatlas.queue.rescues import rescue
from siteatlas.storage.models import Job, JobAttempt, Scan, Sitemap, SitemapScan, SitemapUrl
from siteatlas.storage.session import bound_database, get_background_session
from tests.fixtures.pipeline import index, pages, rows_of, settings_for, submit_server, urlset, work
from tests.fixtures.queue import change, job_of, let_lease_expire, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")

CHILDREN = ("a", "b", "c")


def slow_site(hold: asyncio.Event) -> SiteServer:
    """Three documents, of which the last one hangs until it is let go."""
    server = SiteServer(
        {
            "/robots.txt": "Sitemap: {base}/index.xml\n",
            "/index.xml": index(f"{{base}}/{name}.xml" for name in CHILDREN),
            "/a.xml": urlset(pages("a", 10)),
            "/b.xml": urlset(pages("b", 10)),
        }
    )

    async def hanging(_request: object) -> str:
        await hold.wait()
        return urlset(pages("c", 10))

    server.pages["/c.xml"] = hanging
    return server


def processor_for(server: SiteServer) -> Processor:
    settings = settings_for(server)
    return Processor(settings, EgressPolicy.from_text(settings.egress_allow))


async def finished_documents() -> int:
    async with get_background_session() as session, session.begin():
        statement = select(SitemapScan).where(SitemapScan.state == "complete")
        return len((await session.execute(statement)).scalars().all())


async def stop_midway(server: SiteServer, *, lost: bool = False) -> int:
    """Start a job, wait until the hanging document was asked for, and stop it.

    `lost`: it was rescued before that, because its lease had run out.
    """
    submitted = await submit_server(server)
    claim = await take_one()
    task = asyncio.create_task(processor_for(server).run(claim, JobActivity()))
    await wait_until(lambda: {"/b.xml", "/c.xml"} <= set(server.paths))
    await asyncio.sleep(0.2)
    if lost:
        await let_lease_expire(submitted.id)
        async with get_background_session() as session, session.begin():
            assert len(await rescue(session)) == 1
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return submitted.id


@pytest.mark.criterion("recovery")
async def test_a_job_taken_up_again_reads_only_what_was_open() -> None:
    hold = asyncio.Event()
    async with slow_site(hold) as server:
        job_id = await stop_midway(server)
        assert await finished_documents() == 3
        await let_lease_expire(job_id)
        server.requests.clear()
        hold.set()
        await work(settings_for(server))
        assert sorted(path for path in server.paths if path != "/robots.txt") == ["/c.xml"]
    job = await job_of(job_id)
    assert (job.status, job.fence) == ("completed", 2)
    assert job.result_data is not None
    assert (job.result_data["url_count"], job.result_data["sitemap_count"]) == (30, 4)
    assert job.result_data["partial"] is False
    assert len(await rows_of(SitemapUrl)) == 30


@pytest.mark.criterion("transaction-boundaries")
async def test_a_job_that_lost_its_lease_writes_nothing_more() -> None:
    hold = asyncio.Event()
    async with slow_site(hold) as server:
        await stop_midway(server, lost=True)
    assert await finished_documents() == 0
    assert await rows_of(SitemapUrl) == []


async def test_a_holder_that_was_overtaken_leaves_the_rows_of_the_other_alone() -> None:
    hold = asyncio.Event()
    async with slow_site(hold) as server:
        submitted = await submit_server(server)
        zombie = asyncio.create_task(processor_for(server).run(await take_one(), JobActivity()))
        await asyncio.sleep(0.3)
        await let_lease_expire(submitted.id)
        second = asyncio.create_task(work(settings_for(server)))
        await asyncio.sleep(0.3)
        hold.set()
        await second
        assert await zombie is None
    job = await job_of(submitted.id)
    assert (job.status, job.fence) == ("completed", 2)
    assert len(await rows_of(SitemapUrl)) == 30
    assert len(await rows_of(Sitemap)) == 4


@pytest.mark.criterion("recovery")
async def test_a_retried_job_reads_everything_again() -> None:
    async with SiteServer() as server:
        submitted = await submit_server(server)
        await work(settings_for(server))
        server.pages["/sitemap.xml"] = urlset(pages("a", 3))
        async with get_background_session() as session, session.begin():
            await retry(session, submitted.id)
        await work(settings_for(server))
    job = await job_of(submitted.id)
    assert job.result_data is not None
    assert (job.status, job.result_data["url_count"]) == ("completed", 3)


async def test_a_cancelled_job_stops_at_its_next_write() -> None:
    hold = asyncio.Event()
    async with slow_site(hold) as server:
        submitted = await submit_server(server)
        running = asyncio.create_task(work(settings_for(server, lease_seconds=2)))
        await wait_until(lambda: "/c.xml" in server.paths)
        async with get_background_session() as session, session.begin():
            assert await cancel(session, submitted.id) == "processing"
        await running
    job = await job_of(submitted.id)
    assert (job.status, job.error_code) == ("cancelled", None)


@pytest.mark.criterion("job-data-kept", "failures-isolated")
async def test_a_job_without_a_site_fails_and_the_others_go_on() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        good = await submit_server(server)
        async with get_background_session() as session, session.begin():
            bad = Job(created_by=(await job_of(good.id)).created_by, result_data={})
            session.add(bad)
        report = await work(settings_for(server))
    assert report.found == 2
    failed = await job_of(bad.id)
    assert (failed.status, failed.error_code) == ("failed", "job_data_invalid")
    assert (await job_of(good.id)).status == "completed"


async def forbid_documents_of(server: SiteServer) -> None:
    """From now on the database refuses the documents of this site, which nobody expects of it."""
    refused = f"ALTER TABLE sitemaps ADD CHECK (url NOT LIKE '%{server.host_port}%')"
    async with bound_database().engine.begin() as connection:
        await connection.execute(text(refused))


@pytest.mark.criterion("errors-handled", "errors-logged")
async def test_the_error_of_a_crash_says_nothing_of_our_inside() -> None:
    site = {"/sitemap.xml": urlset(pages("a", 3))}
    async with SiteServer(site) as broken, SiteServer(site) as good:
        await forbid_documents_of(broken)
        crashing = await submit_server(broken, max_attempts=1)
        other = await submit_server(good)
        report = await work(settings_for(broken, good))
    job = await job_of(crashing.id)
    assert report.found == 2
    assert (job.status, job.error_code) == ("failed", "internal_error")
    assert job.error == SiteatlasError().message
    endings = {(one.outcome, one.error) for one in await rows_of(JobAttempt)}
    assert endings == {("failed", job.error), ("completed", None)}
    assert (await job_of(other.id)).status == "completed"


async def test_a_site_that_may_not_be_contacted_fails_with_that_reason() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        submitted = await submit_server(server)
        await change(submitted.id, job_metadata={"base_url": "http://127.0.0.1:1/"})
        await work(settings_for(server))
        assert server.paths == []
    job = await job_of(submitted.id)
    assert (job.status, job.error_code) == ("failed", "egress_denied")
    assert job.error == EgressDenied().message


@pytest.mark.criterion("processor-called", "call-signatures")
async def test_the_older_entry_point_runs_one_waiting_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 30))}) as server:
        monkeypatch.setenv("SITEATLAS_EGRESS_ALLOW", server.host_port)
        submitted = await submit_server(server)
        await process_domain_with_own_session(
            job_id=str(submitted.job_id), domain=submitted.domain, user_id=None, max_urls=10
        )
    job = await job_of(submitted.id)
    assert job.result_data is not None
    assert (job.status, job.result_data["url_count"]) == ("completed", 10)


@pytest.mark.criterion("processor-called")
async def test_the_older_entry_point_and_the_scheduler_leave_the_same_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with slow_site(released()) as by_name, slow_site(released()) as by_clock:
        settings = settings_for(by_name, by_clock)
        monkeypatch.setenv("SITEATLAS_EGRESS_ALLOW", settings.egress_allow)
        first = await submit_server(by_name)
        await process_domain_with_own_session(job_id=first.id, domain=first.domain)
        second = await submit_server(by_clock)
        await work(settings)
    assert await traces_of(first.id, by_name) == await traces_of(second.id, by_clock)


def released() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def traces_of(job_id: int, server: SiteServer) -> tuple[object, ...]:
    """What a job left behind, without what differs from run to run."""
    job = await job_of(job_id)
    assert job.result_data is not None
    attempts = [one.outcome for one in await rows_of(JobAttempt) if one.job_id == job_id]
    documents = [row for row in await rows_of(Sitemap) if row.last_job_id == job.job_id]
    return (
        (job.status, job.progress, job.attempt, job.created_by, job.error, attempts),
        {key: job.result_data[key] for key in ("url_count", "sitemap_count", "partial", "reasons")},
        sorted((row.url.removeprefix(server.base), row.status, row.url_count) for row in documents),
    )


async def test_cancelling_a_snoozed_job_ends_its_scan_too() -> None:
    busy = web.Response(status=429, headers={"Retry-After": "120"})
    async with SiteServer({"/robots.txt": lambda _request: busy}) as server:
        submitted = await submit_server(server)
        await work(settings_for(server))
    async with get_background_session() as session, session.begin():
        assert await cancel(session, submitted.id) == "cancelled"
    assert [scan.state for scan in await rows_of(Scan)] == ["cancelled"]


async def test_a_holder_that_was_overtaken_before_it_began_does_not_open_the_scan_again() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        submitted = await submit_server(server)
        late = await take_one()
        await let_lease_expire(submitted.id)
        await work(settings_for(server))
        assert await processor_for(server).run(late, JobActivity()) is None
    assert [scan.state for scan in await rows_of(Scan)] == ["published"]
    assert {row.state for row in await rows_of(SitemapScan)} == {"complete"}


async def test_a_continued_scan_does_not_read_what_the_index_listed_in_an_earlier_one() -> None:
    hold = asyncio.Event()
    async with slow_site(hold) as server:
        hold.set()
        await submit_server(server)
        await work(settings_for(server))
        hold.clear()
        server.pages["/index.xml"] = index(f"{{base}}/{name}.xml" for name in ("a", "c"))
        server.pages["/a.xml"] = urlset(pages("a", 6_000))
        server.requests.clear()
        submitted = await submit_server(server)
        task = asyncio.create_task(processor_for(server).run(await take_one(), JobActivity()))
        await wait_until(lambda: "/c.xml" in server.paths)
        await wait_until(lambda: progressed(submitted.id))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await let_lease_expire(submitted.id)
        hold.set()
        await work(settings_for(server))
    assert (await job_of(submitted.id)).status == "completed"
    (left_out,) = [sitemap for sitemap in await rows_of(Sitemap) if sitemap.url.endswith("/b.xml")]
    newest = max(scan.id for scan in await rows_of(Scan))
    assert (newest, left_out.id) not in {
        (row.scan_id, row.sitemap_id) for row in await rows_of(SitemapScan)
    }


async def progressed(job_id: int) -> bool:
    return (await job_of(job_id)).progress > 0.3
