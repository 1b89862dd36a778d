"""How many statements a job takes: on a tiny site they cost more than the scan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import func, select, update

from siteatlas.errors import JobCancelled, LeaseLost
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.processing import Processor
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.fence import Claim
from siteatlas.queue.opening import NewScan, open_new_scan, report_start
from siteatlas.storage.models import Domain, Job, JobStatus, Scan
from siteatlas.storage.session import (
    BACKGROUND_LIMITS,
    bind_database,
    bound_database,
    create_database,
    get_autocommit_session,
    get_background_session,
)
from tests.fixtures.database import PostgresServer, is_lock_awaited
from tests.fixtures.pipeline import pages, settings_for, submit_server, urlset
from tests.fixtures.queue import submit, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.transactions import Transaction, watched_transactions
from tests.fixtures.waiting import wait_until

TINY = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(pages("a", 10))}
# One to open the scan; to publish it: one that begins the transaction of the COPY, sitemap, listing,
# candidate, summary, baseline, robots.txt, scan and site, job, number. The COPY of the URLs and the
# limits, which are sent with the BEGIN, are not counted here.
STATEMENTS_OF_A_WORKER = 11
# The sitemap is updated twice, nothing is stored of its URLs, and there is no baseline. Findings: one
# to resolve that the sitemap could not be fetched, one to compare with what was told.
STATEMENTS_OF_AN_UNCHANGED_SITE = 12


async def open_new(claim: Claim) -> NewScan | None:
    async with get_autocommit_session(for_job=True) as session:
        return await open_new_scan(session, claim, lease_seconds=60, progress=0.1)


async def scans() -> int:
    async with get_background_session() as session, session.begin():
        return await session.scalar(select(func.count()).select_from(Scan)) or 0


async def change_job(**values: object) -> None:
    async with get_background_session() as session, session.begin():
        await session.execute(update(Job).values(**values))


@asynccontextmanager
async def direct_worker(server: PostgresServer, name: str) -> AsyncIterator[None]:
    """A worker that reaches its server directly; through a pooler it sets its limits each time."""
    before = bound_database()
    worker = create_database(
        server.direct_url_of(name), behind_pooler=False, usual_limits=BACKGROUND_LIMITS
    )
    bind_database(worker)
    try:
        yield
    finally:
        bind_database(before)
        await worker.close()


async def run_one(server: SiteServer) -> list[Transaction]:
    """Run the waiting job; give its transactions."""
    claim = await take_one()
    settings = settings_for(server)
    processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
    with watched_transactions() as watched:
        assert await processor.run(claim, JobActivity()) is JobStatus.COMPLETED
    return watched.all


@pytest.mark.usefixtures("database")
async def test_a_worker_scans_a_tiny_site_in_few_statements(
    postgres_server: PostgresServer, database_name: str
) -> None:
    async with SiteServer(TINY) as server, direct_worker(postgres_server, database_name):
        await submit_server(server)
        transactions = await run_one(server)
        await submit_server(server)
        unchanged = await run_one(server)
    assert len(transactions) == len(unchanged) == 2
    assert transactions[0].limits == {}  # they stand on the connections of a worker
    statements = [one for transaction in transactions for one in transaction.statements]
    assert len(statements) == STATEMENTS_OF_A_WORKER, statements
    statements = [one for transaction in unchanged for one in transaction.statements]
    assert len(statements) == STATEMENTS_OF_AN_UNCHANGED_SITE, statements


@pytest.mark.usefixtures("database")
async def test_the_first_scan_of_a_job_is_opened_once_only() -> None:
    await submit("example.com")
    claim = await take_one()
    opened = await open_new(claim)
    assert opened is not None
    assert opened.known == {}
    assert await open_new(claim) is None
    assert await scans() == 1


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param({"fence": Job.fence + 1}, LeaseLost, id="claimed by another worker"),
        pytest.param({"cancel_requested_at": func.now()}, JobCancelled, id="to be cancelled"),
    ],
)
async def test_no_scan_is_opened_for_a_job_that_must_not_go_on(
    change: dict[str, object], error: type[Exception]
) -> None:
    await submit("example.com")
    claim = await take_one()
    await change_job(**change)
    assert await open_new(claim) is None
    assert await scans() == 0
    with pytest.raises(error):
        async with get_background_session() as session, session.begin():
            await report_start(session, claim, lease_seconds=60, progress=0.1)


@pytest.mark.usefixtures("database")
async def test_a_new_scan_gets_the_documents_of_submissions_that_joined_its_job() -> None:
    await submit("example.com", document="https://example.com/a.xml")
    await submit("example.com", document="https://example.com/b.xml")
    opened = await open_new(await take_one())
    assert opened is not None
    assert opened.joined == ("https://example.com/b.xml",)


@pytest.mark.usefixtures("database")
async def test_a_scan_that_waits_for_its_site_does_not_lock_its_job() -> None:
    await submit("example.com")
    claim = await take_one()
    async with get_background_session() as holder, holder.begin():
        await holder.execute(select(Domain.id).with_for_update())
        opening = asyncio.create_task(open_new(claim))
        await wait_until(is_lock_awaited)
        await change_job(updated_at=func.now())
    assert await opening is not None
