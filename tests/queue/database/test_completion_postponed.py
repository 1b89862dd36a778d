"""A database that is busy or has another schema costs a job time, not an attempt."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, text

from siteatlas.queue.completion import MAX_POSTPONEMENTS
from siteatlas.storage.models import Domain, Job, JobAttempt
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import pages, rows_of, settings_for, submit_server, urlset, work
from tests.fixtures.queue import change, job_of
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")

HIDE = "ALTER TABLE sitemap_urls RENAME TO hidden"
SHOW = "ALTER TABLE hidden RENAME TO sitemap_urls"


def small_site() -> SiteServer:
    return SiteServer({"/robots.txt": "Sitemap: {base}/s.xml\n", "/s.xml": urlset(pages("s", 3))})


async def run(statement: str) -> None:
    async with transaction() as session:
        await session.execute(text(statement))


async def postpone_once(server: SiteServer, job_id: int) -> tuple[Job, float]:
    """Run the job against a database that lacks a table; how long it has to wait then."""
    await run(f"UPDATE jobs SET run_at = now() WHERE id = {job_id}")
    await work(settings_for(server))
    async with transaction() as session:
        age = text("SELECT extract(epoch FROM run_at - updated_at) FROM jobs WHERE id = :job")
        pause = await session.scalar(age, {"job": job_id})
    return await job_of(job_id), float(pause or 0)


async def test_an_attempt_that_met_another_schema_is_refunded_with_a_growing_pause() -> None:
    async with small_site() as server:
        submitted = await submit_server(server)
        await run(HIDE)
        pauses = []
        for _ in range(3):
            job, pause = await postpone_once(server, submitted.id)
            assert (job.status, job.attempt) == ("pending", 0)
            pauses.append(pause)
        await run(SHOW)
        job, _ = await postpone_once(server, submitted.id)
    assert pauses[0] < pauses[1] < pauses[2]
    assert 2 <= pauses[0] <= 4
    assert (job.status, job.attempt) == ("completed", 1)
    assert [domain.failures_in_a_row for domain in await rows_of(Domain)] == [0]


async def test_a_job_that_never_gets_through_uses_up_its_attempts_at_last() -> None:
    async with small_site() as server:
        submitted = await submit_server(server)
        await change(submitted.id, fence=MAX_POSTPONEMENTS)
        async with transaction() as session:
            rows = [
                {"job_id": submitted.id, "fence": fence, "attempt": 1, "outcome": "released"}
                for fence in range(1, MAX_POSTPONEMENTS + 1)
            ]
            busy = [row | {"error_code": "database_busy"} for row in rows]
            await session.execute(insert(JobAttempt), busy)
        await run(HIDE)
        job, _ = await postpone_once(server, submitted.id)
    assert (job.status, job.attempt, job.error_code) == ("pending", 1, "schema_outdated")


async def test_only_the_times_since_anything_else_are_counted() -> None:
    async with small_site() as server:
        submitted = await submit_server(server)
        await change(submitted.id, fence=3)
        async with transaction() as session:
            common = {"job_id": submitted.id, "attempt": 1}
            await session.execute(
                insert(JobAttempt),
                [
                    common | {"fence": 1, "outcome": "released", "error_code": "database_busy"},
                    common | {"fence": 2, "outcome": "released", "error_code": "database_busy"},
                    common | {"fence": 3, "outcome": "rescued", "error_code": "lease_expired"},
                ],
            )
        await run(HIDE)
        _, pause = await postpone_once(server, submitted.id)
    assert pause <= 4
