"""Documents that a person named stay part of their site; pages that a person named never are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, update

from siteatlas.catalog.sitemaps import MANUAL_GRACE_DAYS
from siteatlas.net.address import parse_site
from siteatlas.queue.submission import watch_site
from siteatlas.scheduler.sitemap_scheduler import enqueue_due_domains
from siteatlas.storage.models import (
    LOCAL_USER_ID,
    Candidate,
    Domain,
    Job,
    Sitemap,
    SitemapLink,
    SitemapScan,
)
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import index, pages, rows_of, settings_for, urlset, work
from tests.fixtures.queue import job_of, submit
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")

HIDDEN = "/hidden/map.xml"
PAGE = "<!DOCTYPE html><html><body>Welcome</body></html>"


def hiding() -> SiteServer:
    """A site whose only sitemap is at a place that nobody could guess."""
    return SiteServer({HIDDEN: urlset(pages("a", 30))})


async def scan_address(server: SiteServer, path: str = "", **options: Any) -> Job:
    """Submit an address of a server, scan it, and give the job as it ended."""
    submitted = await submit(server.base + path, **options)
    await work(settings_for(server))
    return await job_of(submitted.id)


async def methods() -> dict[str, str]:
    return {
        "/" + sitemap.url.split("/", 3)[3]: sitemap.discovery_method
        for sitemap in await rows_of(Sitemap)
    }


async def change_all(table: type, **values: object) -> None:
    async with get_background_session() as session, session.begin():
        await session.execute(update(table).values(**values))


@pytest.mark.parametrize("watch", [True, False])
async def test_a_given_sitemap_is_read_again_when_the_bare_site_is_scanned(watch: bool) -> None:
    async with hiding() as server:
        first = await scan_address(server, HIDDEN, watch=watch)
        asked = len(server.paths)
        second = await scan_address(server)
        assert server.paths[asked:] == ["/robots.txt", HIDDEN]
    for job in (first, second):
        assert job.status == "completed"
        assert job.result_data is not None
        assert (job.result_data["url_count"], job.result_data["partial"]) == (30, False)
    assert await methods() == {HIDDEN: "manual"}


async def test_a_watched_sitemap_is_read_again_when_its_site_is_due() -> None:
    async with hiding() as server:
        async with get_background_session() as session, session.begin():
            address = parse_site(server.base + HIDDEN)
            await watch_site(session, address, created_by=LOCAL_USER_ID)
        settings = settings_for(server)
        await work(settings)
        await change_all(Domain, next_scan_at=func.now())
        assert await enqueue_due_domains(settings) == 1
        await work(settings)
        assert server.paths == ["/robots.txt", HIDDEN] * 2
    assert [job.status for job in await rows_of(Job)] == ["completed", "completed"]
    (domain,) = await rows_of(Domain)
    assert (domain.last_scan_status, domain.failures_in_a_row) == ("completed", 0)


async def test_a_given_sitemap_stays_one_though_an_index_lists_it_too() -> None:
    listed = index(["{base}" + HIDDEN])
    async with SiteServer({HIDDEN: urlset(pages("a", 3)), "/i.xml": listed}) as server:
        await scan_address(server, HIDDEN)
        server.pages["/robots.txt"] = "Sitemap: {base}/i.xml"
        await scan_address(server)
        assert await methods() == {HIDDEN: "manual", "/i.xml": "robots_txt"}
        await scan_address(server, document=server.base + "/i.xml")
    assert (await methods())[HIDDEN] == "manual"


async def test_a_given_sitemap_that_never_was_one_is_reported_and_not_requested_again() -> None:
    site = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(pages("a", 3)), "/m.xml": PAGE}
    async with SiteServer(site) as server:
        first = await scan_address(server, "/m.xml")
        second = await scan_address(server)
        assert server.paths.count("/m.xml") == 1
    assert first.result_data is not None
    assert first.result_data["reasons"] == ["html_instead"]
    assert second.result_data is not None
    assert second.result_data["partial"] is False


async def test_a_given_sitemap_that_fails_is_requested_until_its_time_is_up() -> None:
    site = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(pages("a", 3))}
    async with SiteServer({**site, HIDDEN: urlset(pages("b", 3))}) as server:
        await scan_address(server, HIDDEN)
        del server.pages[HIDDEN]
        failed = await scan_address(server)
        assert failed.result_data is not None
        assert failed.result_data["reasons"] == ["http_not_found"]
        await change_all(
            SitemapScan, finished_at=func.now() - timedelta(days=MANUAL_GRACE_DAYS + 1)
        )
        later = await scan_address(server)
        assert server.paths.count(HIDDEN) == 2
    assert later.result_data is not None
    assert later.result_data["partial"] is False


async def test_a_given_page_leaves_a_candidate_and_no_document() -> None:
    site = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(pages("a", 3)), "/en/": PAGE}
    async with SiteServer(site) as server:
        job = await scan_address(server, "/en/", watch=True)
        looked_at = {row.url.removeprefix(server.base): row for row in await rows_of(Candidate)}
    assert job.result_data is not None
    assert (job.result_data["partial"], job.result_data["reasons"]) == (False, [])
    assert await methods() == {"/s.xml": "robots_txt"}
    assert (looked_at["/en/"].verdict, looked_at["/en/"].reason) == ("rejected", "html_instead")
    (domain,) = await rows_of(Domain)
    assert domain.last_scan_status == "completed"


async def test_refused_addresses_are_documents_of_the_site_and_reasons_of_the_scan() -> None:
    refused = "http://10.0.0.1/internal.xml"
    site = {
        "/robots.txt": "Sitemap: {base}/i.xml\nSitemap: htp:/bogus",
        "/i.xml": index(["{base}/a.xml", refused]),
        "/a.xml": urlset(pages("a", 3)),
    }
    async with SiteServer(site) as server:
        job = await scan_address(server)
        again = await scan_address(server)
    rows = {row.url: row for row in await rows_of(Sitemap)}
    assert {url: rows[url].error_code for url in (refused, "htp:/bogus")} == {
        refused: "egress_denied",
        "htp:/bogus": "address_scheme",
    }
    children = {link.child_id for link in await rows_of(SitemapLink)}
    assert rows[refused].id in children
    for ended in (job, again):
        assert ended.status == "completed"
        assert ended.result_data is not None
        assert sorted(ended.result_data["reasons"]) == ["address_scheme", "egress_denied"]


@pytest.mark.parametrize("typed", ["{base}", "{host}"])
async def test_a_sitemap_given_while_a_scan_waits_is_read_by_that_scan(typed: str) -> None:
    named = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(pages("a", 3))}
    async with SiteServer(named | {HIDDEN: urlset(pages("b", 4))}) as server:
        host = server.base.split("://")[1]
        waiting = await submit(server.base)
        for _ in range(2):
            joined = await submit(typed.format(base=server.base, host=host) + HIDDEN)
            assert (joined.id, joined.deduplicated) == (waiting.id, True)
        await work(settings_for(server))
        assert server.paths.count(HIDDEN) == 1
    job = await job_of(waiting.id)
    assert job.result_data is not None
    assert job.result_data["url_count"] == 7
    assert await methods() == {"/s.xml": "robots_txt", HIDDEN: "manual"}


async def test_a_sitemap_given_while_a_scan_runs_is_read_by_the_next_one_and_kept() -> None:
    named = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(pages("a", 3))}
    async with SiteServer(named | {HIDDEN: urlset(pages("b", 4))}) as server:
        running = await submit(server.base)
        await change_all(Job, status="processing")
        assert (await submit(server.base + HIDDEN)).id == running.id
        await change_all(Job, status="completed")
        for _ in range(2):
            await scan_address(server)
        assert server.paths == ["/robots.txt", HIDDEN, "/s.xml"] * 2
    assert await methods() == {"/s.xml": "robots_txt", HIDDEN: "manual"}


async def test_a_page_or_broken_sitemap_given_while_a_scan_waits_is_not_asked_for_again() -> None:
    named = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(pages("a", 3))}
    async with SiteServer(named | {"/m.xml": PAGE, "/en/": PAGE}) as server:
        await submit(server.base)
        for path in ("/m.xml", "/en/"):
            await submit(server.base + path)
        await work(settings_for(server))
        await scan_address(server)
        assert (server.paths.count("/m.xml"), server.paths.count("/en/")) == (1, 0)


async def test_a_document_asked_for_alone_is_read_with_the_site_whose_scan_takes_its_place() -> (
    None
):
    named = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(pages("a", 3))}
    async with SiteServer(named | {HIDDEN: urlset(pages("b", 4))}) as server:
        alone = await submit(server.base + HIDDEN, document=server.base + HIDDEN)
        assert (await submit(server.base)).id == alone.id
        await work(settings_for(server))
        assert server.paths == ["/robots.txt", HIDDEN, "/s.xml"]
