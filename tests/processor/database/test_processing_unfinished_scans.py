"""What a scan leaves behind when it ends before it has read everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import func, insert, select

from siteatlas.catalog import sitemaps as known_sitemaps
from siteatlas.catalog.urls import url_hash
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor import processing
from siteatlas.processor.processing import Processor, recount_site
from siteatlas.processor.publication import record_cancellation
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.claims import claim
from siteatlas.queue.fence import Claim
from siteatlas.storage.models import (
    Domain,
    Job,
    Scan,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapScanState,
    SitemapUrl,
)
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import (
    index,
    pages,
    rows_of,
    scan_server,
    settings_for,
    submit_server,
    urlset,
)
from tests.fixtures.queue import job_of
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")
CHILDREN = 250


def many_children(count: int = CHILDREN) -> dict[str, Any]:
    """A site whose index lists many children, each of five pages."""
    site: dict[str, Any] = {f"/c{n}.xml": urlset(pages(f"c{n}", 5)) for n in range(count)}
    site["/robots.txt"] = "Sitemap: {base}/index.xml\n"
    site["/index.xml"] = index(f"{{base}}/c{n}.xml" for n in range(count))
    return site


async def numbers_of(*tables: type[Any]) -> list[int]:
    """How many rows each table has."""
    return [len(await rows_of(table)) for table in tables]


async def test_children_beyond_the_limit_of_documents_are_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processing, "MAX_DOCUMENTS", 120)
    async with SiteServer(many_children()) as server:
        job = await scan_server(server)
    assert job.result_data is not None
    assert (job.status, job.result_data["reasons"]) == ("completed", ["document_limit"])
    assert job.result_data["sitemap_count"] == 120
    assert await numbers_of(Sitemap, SitemapScan, SitemapLink) == [120, 120, 119]


async def test_a_site_that_has_the_most_documents_is_read_as_far_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processing, "MAX_DOCUMENTS_PER_DOMAIN", 110)
    monkeypatch.setattr(processing, "MIN_DOCUMENTS", 10)
    async with SiteServer(many_children()) as server:
        first = await scan_server(server)
        again = await scan_server(server)
    assert first.result_data is not None
    assert again.result_data is not None
    assert first.result_data["sitemap_count"] == 110
    assert (again.result_data["sitemap_count"], again.result_data["reasons"]) == (
        10,
        ["document_limit"],
    )
    assert await numbers_of(Sitemap) == [110]


async def test_what_a_published_scan_never_asked_for_leaves_no_row() -> None:
    async with SiteServer(many_children()) as server:
        job = await scan_server(server, max_pages=22)
    assert job.result_data is not None
    assert job.result_data["reasons"] == ["url_limit"]
    assert len(await rows_of(Sitemap)) < 20
    assert await numbers_of(Sitemap) == await numbers_of(SitemapScan)
    assert {row.state for row in await rows_of(SitemapScan)} <= {"complete", "cut", "unread"}


async def test_a_scan_after_a_limited_one_reads_what_that_never_asked_for() -> None:
    async with SiteServer(many_children(30)) as server:
        await scan_server(server, max_pages=22)
        job = await scan_server(server)
    assert job.result_data is not None
    assert (job.result_data["sitemap_count"], job.result_data["url_count"]) == (31, 150)


async def test_a_scan_after_a_cancelled_one_reads_what_that_never_asked_for() -> None:
    site = many_children(30) | {"/c0.xml": endless(12_000)}
    async with SiteServer(site) as server:
        taken, processor = await begun(server)
        running = asyncio.create_task(processor.run(taken, JobActivity()))
        await wait_until(has_listings)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await record_cancellation(taken)
        server.pages["/c0.xml"] = urlset(pages("c0", 5))
        job = await scan_server(server)
    assert job.result_data is not None
    assert job.result_data["sitemap_count"] == 31


async def test_what_another_scan_has_read_stays_when_a_later_one_does_not_ask_for_it() -> None:
    async with SiteServer(many_children(30)) as server:
        await scan_server(server)
        await scan_server(server, max_pages=5)
    assert await numbers_of(Sitemap, SitemapUrl) == [31, 150]
    states = Counter((row.state, row.error_code) for row in await rows_of(SitemapScan))
    assert states[SitemapScanState.UNREAD, "not_asked"] > 20


async def test_a_site_with_more_documents_than_are_loaded_is_scanned_without_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = known_sitemaps._load_known.limit(None).limit(11)
    monkeypatch.setattr(known_sitemaps, "MAX_LOADED", 10)
    monkeypatch.setattr(known_sitemaps, "_load_known", few)
    async with SiteServer(many_children(30)) as server:
        await scan_server(server)
        before = {row.url: row.id for row in await rows_of(Sitemap)}
        server.pages["/c7.xml"] = urlset(pages("c7", 9))
        server.pages["/index.xml"] = index(f"{{base}}/c{n}.xml" for n in range(31))
        server.pages["/c30.xml"] = urlset(pages("c30", 5))
        job = await scan_server(server)
    assert job.result_data is not None
    assert (job.status, job.result_data["url_count"]) == ("completed", 31 * 5 + 4)
    after = {row.url: row.id for row in await rows_of(Sitemap)}
    assert len(after) == 32
    assert before.items() <= after.items()


async def begun(server: SiteServer) -> tuple[Claim, Processor]:
    await submit_server(server)
    settings = settings_for(server)
    processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
    async with get_background_session() as session, session.begin():
        [taken] = await claim(session, "one", 1, 60)
    return taken, processor


def endless(count: int) -> Any:
    """A document that lists so many pages and then goes silent."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        listed = urlset(f"http://{request.host}/long/{n}" for n in range(count))
        await response.write(listed.removesuffix("</urlset>").encode())
        await asyncio.sleep(30)
        return response

    return answer


async def has_listings() -> bool:
    async with get_background_session() as session, session.begin():
        return bool(await session.scalar(select(func.count()).select_from(SitemapUrl)))


async def test_after_a_cancel_inside_a_document_the_counters_are_those_of_the_rows() -> None:
    site = many_children(0) | {
        "/index.xml": index(["{base}/long.xml", "{base}/short.xml"]),
        "/long.xml": endless(12_000),
        "/short.xml": urlset(pages("short", 3)),
    }
    async with SiteServer(site) as server:
        taken, processor = await begun(server)
        running = asyncio.create_task(processor.run(taken, JobActivity()))
        await wait_until(has_listings)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await record_cancellation(taken)
        await recount_site(taken.id)
    listed = Counter(row.sitemap_id for row in await rows_of(SitemapUrl))
    documents = await rows_of(Sitemap)
    assert sum(listed.values()) > 5_000
    assert {row.id: row.url_count for row in documents if row.url_count} == dict(listed)
    [long] = [row for row in documents if row.url.endswith("/long.xml")]
    assert (long.status, long.error_code) == ("failed", "cancelled")
    [domain], [scan] = await rows_of(Domain), await rows_of(Scan)
    assert (domain.url_count, domain.distinct_url_count) == (sum(listed.values()),) * 2
    assert scan.state == "cancelled"
    assert "pending" not in {row.state for row in await rows_of(SitemapScan)}


async def test_rows_that_a_scan_of_an_older_version_left_cost_a_later_one_little() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 5))}) as server:
        await scan_server(server)
        [domain], [job] = await rows_of(Domain), await rows_of(Job)
        rows = [
            {
                "domain_id": domain.id,
                "url": f"{server.base}/old-{n}.xml",
                "url_hash": url_hash(f"{server.base}/old-{n}.xml"),
                "discovery_method": "sitemap_index",
                "first_job_id": job.job_id,
                "last_job_id": job.job_id,
                "created_by": job.created_by,
            }
            for n in range(known_sitemaps.MAX_LOADED + 1)
        ]
        async with get_background_session() as session, session.begin():
            await session.execute(insert(Sitemap), rows)
            known, count = await known_sitemaps.load_sitemaps(session, domain.id, 0, resumed=False)
        again = await scan_server(server)
    assert (known, count) == ({}, len(rows) + 1)
    assert (again.status, (await job_of(again.id)).error_code) == ("completed", None)
