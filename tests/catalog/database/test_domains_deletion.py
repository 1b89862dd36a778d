"""Deleting a site: its name is free at once, and its rows go in small batches, no others."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from sqlalchemy import func, select

from siteatlas.catalog import domains as deleted_domains
from siteatlas.catalog.domains import (
    find_domain,
    find_domain_view,
    list_domains,
    prune_deleted_domains,
)
from siteatlas.errors import DomainNotFound
from siteatlas.net.address import parse_site
from siteatlas.queue.operator_actions import cancel, remove_domain_and_jobs, retry
from siteatlas.queue.views import find_job
from siteatlas.scheduler.sitemap_scheduler import prune
from siteatlas.storage.models import Candidate, Domain, Scan, Sitemap, SitemapScan, SitemapUrl
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import (
    index,
    pages,
    rows_of,
    scan_server,
    settings_for,
    submit_server,
    urlset,
    work,
)
from tests.fixtures.queue import job_of, submit
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")


def site_of(server: SiteServer) -> str:
    return parse_site(server.base).domain


async def remove(name: str) -> None:
    async with get_background_session() as session, session.begin():
        await remove_domain_and_jobs(session, name)


async def id_of(name: str) -> UUID:
    async with get_background_session() as session, session.begin():
        domain = await find_domain(session, name)
    assert domain is not None
    return domain.id


async def listings_of(domain_id: UUID) -> int:
    statement = (
        select(func.count())
        .select_from(SitemapUrl)
        .join(Sitemap, Sitemap.id == SitemapUrl.sitemap_id)
        .where(Sitemap.domain_id == domain_id)
    )
    async with get_background_session() as session, session.begin():
        return (await session.execute(statement)).scalar_one()


async def test_a_deleted_site_that_is_added_again_is_a_new_one() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await scan_server(server)
        name = site_of(server)
        before = await id_of(name)
        await remove(name)
        await submit_server(server)
        async with get_background_session() as session, session.begin():
            view = await find_domain_view(session, name)
        assert view.id != before
        assert (view.url_count, view.last_scan_at) == (0, None)
        await work(settings_for(server))
        assert await listings_of(view.id) == 3


async def test_what_is_left_of_a_deleted_site_is_in_no_list() -> None:
    await submit("example.com")
    await remove("example.com")
    async with get_background_session() as session, session.begin():
        assert (await list_domains(session)).items == []
        assert await find_domain(session, "example.com") is None
    (left,) = await rows_of(Domain)
    with pytest.raises(DomainNotFound):
        await remove(left.domain.removeprefix("#"))


async def test_pruning_removes_every_row_of_a_deleted_site_and_none_of_the_new_one() -> None:
    children = {f"/{n}.xml": urlset(pages(str(n), 4)) for n in range(3)}
    site = {"/sitemap.xml": index("{base}" + path for path in children), **children}
    async with SiteServer(site) as server:
        await scan_server(server)
        await remove(site_of(server))
        await scan_server(server)
        new = await id_of(site_of(server))
    await prune()
    assert [domain.id for domain in await rows_of(Domain)] == [new]
    assert {row.domain_id for row in await rows_of(Sitemap)} == {new}
    assert {row.domain_id for row in await rows_of(Scan)} == {new}
    assert {row.domain_id for row in await rows_of(Candidate)} == {new}
    assert {row.scan_id for row in await rows_of(SitemapScan)} == {
        scan.id for scan in await rows_of(Scan)
    }
    assert len(await rows_of(SitemapUrl)) == await listings_of(new) == 12


async def test_a_large_site_is_removed_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_domains, "ROWS_PER_BATCH", 4)
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 10))}) as server:
        await scan_server(server)
        await remove(site_of(server))
    left = []
    for _ in range(3):
        async with get_background_session() as session, session.begin():
            assert await prune_deleted_domains(session) <= 4
        left.append(len(await rows_of(SitemapUrl)))
    assert left == [6, 2, 0]
    assert len(await rows_of(Domain)) == 1
    await prune()
    assert (await rows_of(Domain), await rows_of(Sitemap)) == ([], [])


async def test_a_site_that_another_process_is_removing_is_left_to_it() -> None:
    await submit("example.com")
    await remove("example.com")
    async with get_background_session() as session, session.begin():
        assert await prune_deleted_domains(session) == 1
        async with get_background_session() as other, other.begin():
            assert await prune_deleted_domains(other) == 0


async def test_the_record_of_a_job_keeps_the_name_of_its_deleted_site() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 1))}) as server:
        job = await scan_server(server)
        name = site_of(server)
    await remove(name)
    async with get_background_session() as session, session.begin():
        assert (await find_job(session, str(job.id))).domain == name
    await prune()
    async with get_background_session() as session, session.begin():
        view = await find_job(session, str(job.id))
    assert (view.domain, view.domain_id, view.status) == (name, None, "completed")


async def test_a_retried_job_of_a_deleted_site_scans_the_new_one() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 2))}) as server:
        submitted = await submit_server(server)
        name = site_of(server)
        before = await id_of(name)
        await remove(name)
        async with get_background_session() as session, session.begin():
            await retry(session, submitted.id)
        await work(settings_for(server))
    assert (await job_of(submitted.id)).status == "completed"
    assert await id_of(name) != before
    await prune()
    assert await listings_of(await id_of(name)) == 2


async def test_a_retry_during_the_deletion_of_its_site_leaves_no_active_job() -> None:
    submitted = await submit("example.com")
    async with get_background_session() as session, session.begin():
        await cancel(session, submitted.id)

    async def again() -> None:
        async with get_background_session() as session, session.begin():
            await retry(session, submitted.id)

    async with get_background_session() as session, session.begin():
        await remove_domain_and_jobs(session, "example.com")
        retrying = asyncio.create_task(again())
        await asyncio.sleep(0.2)
        assert not retrying.done()
    await retrying
    job = await job_of(submitted.id)
    assert (job.status, job.domain_id) == ("pending", None)


@pytest.mark.full
async def test_no_url_is_lost_when_sites_are_deleted_and_added_while_retention_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deleted_domains, "ROWS_PER_BATCH", 100)
    done = asyncio.Event()

    async def pruning() -> None:
        while not done.is_set():
            await prune()
            await asyncio.sleep(0)

    async with SiteServer({"/sitemap.xml": urlset(pages("a", 1_000))}) as server:
        name = site_of(server)
        pruners = [asyncio.create_task(pruning()) for _ in range(3)]
        for _ in range(8):
            job = await scan_server(server)
            assert (job.status, (job.result_data or {})["url_count"]) == ("completed", 1_000)
            assert await listings_of(await id_of(name)) == 1_000
            await remove(name)
        done.set()
        await asyncio.gather(*pruners)
    await prune()
    assert (await rows_of(Domain), await rows_of(SitemapUrl)) == ([], [])
