"""A scan of one document: it is read, and all else that is known of its site stays as it is."""

from __future__ import annotations

import pytest

from siteatlas.storage.models import Domain, Job, Scan, Sitemap
from tests.fixtures.pipeline import pages, rows_of, scan_server, settings_for, urlset, work
from tests.fixtures.queue import job_of, submit
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")

SITE = {
    "/robots.txt": "Sitemap: {base}/a.xml\nSitemap: {base}/b.xml\n",
    "/a.xml": urlset(pages("a", 3)),
    "/b.xml": urlset(pages("b", 2)),
    "/c.xml": urlset(pages("c", 4)),
}


async def scan_document(server: SiteServer, path: str) -> Job:
    submitted = await submit(server.base + path, document=server.base + path)
    await work(settings_for(server))
    return await job_of(submitted.id)


async def test_one_document_is_added_to_what_is_stored() -> None:
    async with SiteServer(SITE) as server:
        await scan_server(server)
        (before,) = await rows_of(Domain)
        server.requests.clear()
        job = await scan_document(server, "/c.xml")
        assert server.paths == ["/robots.txt", "/c.xml"]
    assert job.status == "completed"
    assert job.result_data is not None
    assert (job.result_data["sitemap_count"], job.result_data["url_count"]) == (1, 4)
    (after,) = await rows_of(Domain)
    assert (after.sitemap_count, after.url_count, after.distinct_url_count) == (3, 9, 9)
    for name in ("base_url", "origin", "last_scan_at", "last_scan_status", "next_scan_at"):
        assert getattr(after, name) == getattr(before, name)
    counts = {s.url.removeprefix(server.base): s.url_count for s in await rows_of(Sitemap)}
    assert counts == {"/a.xml": 3, "/b.xml": 2, "/c.xml": 4}


async def test_a_document_that_cannot_be_read_is_no_failure_of_the_site() -> None:
    async with SiteServer(SITE) as server:
        await scan_server(server)
        job = await scan_document(server, "/missing.xml")
    assert (job.status, job.error_code) == ("failed", "http_not_found")
    assert {scan.scope: scan.state for scan in await rows_of(Scan)} == {
        "full": "published",
        "document": "failed",
    }
    (domain,) = await rows_of(Domain)
    assert (domain.last_scan_status, domain.failures_in_a_row) == ("completed", 0)
    assert domain.url_count == 5
