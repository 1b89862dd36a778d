"""The sessions of a job: a background session for each step, one at a time, closed on all paths."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import text

from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.processing import Processor
from siteatlas.processor.steps import JobActivity
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import BACKGROUND_LIMITS, REQUEST_LIMITS, bound_database
from tests.fixtures.pipeline import index, pages, settings_for, submit_server, urlset
from tests.fixtures.queue import job_of, take, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.transactions import Transaction, WatchedTransactions, watched_transactions

pytestmark = pytest.mark.usefixtures("database")

SITE = {
    "/robots.txt": "Sitemap: {base}/index.xml\n",
    "/index.xml": index(["{base}/a.xml", "{base}/b.xml"]),
    "/a.xml": urlset(pages("a", 6_000)),
    "/b.xml": urlset(pages("b", 10)),
}
EMPTY_SITE: dict[str, str] = {}


def checked_out() -> int:
    pool = bound_database().engine.pool
    return pool.checkedout()  # type: ignore[attr-defined, no-any-return]


async def break_the_table_of_urls() -> None:
    """From now on no URL can be stored: the processor meets a fault that it does not know."""
    async with bound_database().engine.begin() as connection:
        await connection.execute(text("ALTER TABLE sitemap_urls ADD CHECK (false)"))


async def run_alone(server: SiteServer) -> tuple[JobStatus | None, WatchedTransactions]:
    """Run one claimed job in this task: no scheduler, no consumer, no heartbeat."""
    settings = settings_for(server)
    await submit_server(server, max_attempts=1)
    claim = await take_one()
    processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
    with watched_transactions() as watched:
        return await processor.run(claim, JobActivity()), watched


@pytest.mark.criterion("processor-independent")
async def test_a_claimed_job_runs_to_its_end_without_a_scheduler() -> None:
    async with SiteServer(SITE) as server:
        status, _ = await run_alone(server)
    assert status is JobStatus.COMPLETED
    job = await job_of(1)
    assert (job.status, job.progress) == ("completed", 1.0)


@pytest.mark.criterion("background-sessions", "transaction-boundaries")
async def test_each_step_of_a_job_has_a_background_session_of_its_own() -> None:
    async with SiteServer(SITE) as server:
        _, watched = await run_alone(server)
    assert len(watched.all) >= 3  # opening, at least one portion, publication
    assert len({id(one.session) for one in watched.all}) == len(watched.all)
    assert all(is_background(one) for one in watched.all)
    assert {one.outcome for one in watched.all} == {"committed"}


def is_background(transaction: Transaction) -> bool:
    """Whether it has the limits of background work; a statement may be given more time."""
    limits = REQUEST_LIMITS | transaction.limits
    return (
        limits["lock_timeout"] == BACKGROUND_LIMITS["lock_timeout"]
        and limits["statement_timeout"] != REQUEST_LIMITS["statement_timeout"]
    )


@pytest.mark.criterion("transaction-boundaries", "no-nesting")
async def test_no_step_of_a_job_is_nested_in_another() -> None:
    async with SiteServer(SITE) as server:
        _, watched = await run_alone(server)
    assert len(watched.all) >= 3
    assert [one for one in watched.all if one.concurrent] == []
    assert watched.savepoints == 0


@pytest.mark.criterion("no-nesting")
async def test_no_session_is_open_while_the_network_is_used() -> None:
    in_use: list[int] = []

    def answer(_request: object) -> str:
        in_use.append(checked_out())
        return urlset(pages("a", 3))

    async with SiteServer({"/robots.txt": "Sitemap: {base}/a.xml", "/a.xml": answer}) as server:
        status, _ = await run_alone(server)
    assert status is JobStatus.COMPLETED
    assert in_use == [0]


@pytest.mark.criterion("errors-handled", "background-sessions", "status-own-session")
async def test_the_status_after_an_error_is_written_in_a_session_of_its_own() -> None:
    async with SiteServer(SITE) as server:
        await break_the_table_of_urls()
        status, watched = await run_alone(server)
    assert status is JobStatus.FAILED
    broken = [one.session for one in watched.all if one.outcome == "rolled back"]
    last = [one for one in watched.all if one.writes("jobs")][-1]
    assert broken
    assert last.session not in broken
    assert (last.outcome, last.writes("jobs"), last.writes("sitemaps")) == (
        "committed",
        True,
        False,
    )


@pytest.mark.criterion("status-own-session")
async def test_the_status_of_a_success_is_written_with_the_last_rows() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 5))}) as server:
        _, watched = await run_alone(server)
    last = watched.all[-1]
    written = [table for table in ("jobs", "sitemaps", "domains") if last.writes(table)]
    assert (last.outcome, written) == ("committed", ["jobs", "sitemaps", "domains"])


@pytest.mark.criterion("background-sessions", "sessions-closed")
@pytest.mark.parametrize("site", [SITE, EMPTY_SITE], ids=["crash", "no sitemap"])
async def test_a_failed_job_leaves_no_connection_in_use(site: dict[str, str]) -> None:
    async with SiteServer(site) as server:
        await break_the_table_of_urls()
        status, watched = await run_alone(server)
    assert status is JobStatus.FAILED
    assert watched.all
    assert watched.open == []
    assert checked_out() == 0


@pytest.mark.criterion("no-shared-connection")
async def test_jobs_that_run_at_once_share_no_connection() -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(SiteServer(SITE)) for _ in range(4)]
        for server in servers:
            await submit_server(server)
        settings = settings_for(*servers)
        processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
        claims = await take(4)
        with watched_transactions() as watched:
            ended = await asyncio.gather(*(processor.run(claim, JobActivity()) for claim in claims))
    assert ended == [JobStatus.COMPLETED] * 4
    at_once = [(one, other) for one in watched.all for other in one.concurrent]
    assert at_once
    assert [one for one, other in at_once if one.connection is other.connection] == []
