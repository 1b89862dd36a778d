"""Batches: shared jobs, refused entries, and counters that outlive the jobs."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import delete, event, select

from siteatlas.net.address import parse_site
from siteatlas.queue.completion import complete, fail
from siteatlas.queue.submission import BatchEntry, close_batches, create_batch
from siteatlas.queue.views import find_batch
from siteatlas.storage.models import LOCAL_USER_ID, Batch, Job
from siteatlas.storage.session import Database, get_background_session
from tests.fixtures.pipeline import rows_of
from tests.fixtures.queue import Priority, job_of, submit, take

pytestmark = pytest.mark.usefixtures("database")

SITES = [f"site-{number}.example.com" for number in range(20)]


async def submit_batch(sites: list[str]) -> Batch:
    entries = [BatchEntry(site, parse_site(site)) for site in sites]
    entries.append(BatchEntry("nonsense", None, "address_invalid", "Not a site."))
    async with get_background_session() as session, session.begin():
        batch_id = await create_batch(session, entries, created_by=LOCAL_USER_ID, max_pages=10)
        return (await session.execute(select(Batch).where(Batch.id == batch_id))).scalar_one()


async def test_a_batch_shares_the_job_that_a_site_already_has() -> None:
    submitted = await submit(SITES[0])
    batch = await submit_batch(SITES[:2])
    async with get_background_session() as session, session.begin():
        view = await find_batch(session, batch.id)
    assert view.domain_statuses[SITES[0]].job_id == submitted.job_id
    assert view.domain_statuses["nonsense"].error_code == "address_invalid"
    assert (view.total_domains, view.failed_domains) == (3, 1)


async def test_a_batch_of_known_sites_joins_them_in_a_few_statements(database: Database) -> None:
    await submit_batch(SITES)
    seen: list[str] = []

    def note(_c: object, _u: object, statement: str, *_rest: object) -> None:
        seen.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    await submit_batch(SITES)
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    assert len(seen) < len(SITES)
    assert sorted(job.dedup_key or "" for job in await rows_of(Job)) == sorted(SITES)


async def test_a_batch_widens_the_waiting_jobs_that_give_less_than_it_wants() -> None:
    narrow = await submit(SITES[0], max_pages=5, priority=Priority.BATCH)
    wide = await submit(SITES[1], max_pages=500, priority=Priority.BATCH)
    late = await submit(SITES[2], max_pages=10, priority=Priority.SCHEDULED)
    await submit_batch(SITES[:3])
    jobs = [await job_of(one.id) for one in (narrow, wide, late)]
    assert [(job.result_data or {})["max_pages"] for job in jobs] == [10, 500, 10]
    assert [job.priority for job in jobs] == [Priority.BATCH] * 3


async def test_two_batches_with_the_same_sites_in_opposite_order_do_not_wait_for_each_other() -> (
    None
):
    async with asyncio.timeout(10):
        await asyncio.gather(submit_batch(SITES), submit_batch(SITES[::-1]))
    async with get_background_session() as session, session.begin():
        assert len((await session.execute(select(Job.id))).all()) == len(SITES)


async def test_a_batch_is_closed_with_its_last_item_and_outlives_its_jobs() -> None:
    batch = await submit_batch(SITES[:2])
    first, second = await take(2)
    async with get_background_session() as session, session.begin():
        await complete(session, first, {})
        assert await close_batches(session) == 0
    async with get_background_session() as session, session.begin():
        await fail(session, second, code="no_sitemap", message="None found.")
    async with get_background_session() as session, session.begin():
        assert await close_batches(session) == 1
        await session.execute(delete(Job))
    async with get_background_session() as session, session.begin():
        view = await find_batch(session, batch.id)
        closed = (await session.execute(select(Batch))).scalar_one()
    assert (closed.completed, closed.failed) == (1, 2)
    assert (view.completed_domains, view.failed_domains, view.progress) == (1, 2, 1.0)
