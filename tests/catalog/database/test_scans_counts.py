"""What a scan counts: what it read itself; a site counts what is stored of it."""

from __future__ import annotations

import pytest

from siteatlas.storage.models import Domain, Scan, Sitemap, SitemapScan
from tests.fixtures.pipeline import pages, rows_of, scan_server, urlset
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")


def counts(result: dict[str, object] | None) -> tuple[object, object, object]:
    assert result is not None
    return result["url_count"], result["distinct_url_count"], result["reasons"]


@pytest.mark.parametrize("known", [False, True])
async def test_a_limited_scan_counts_what_it_read_also_on_a_known_site(known: bool) -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 200))}) as server:
        if known:
            await scan_server(server)
        job = await scan_server(server, max_pages=100)
    assert counts(job.result_data) == (100, 100, ["url_limit"])
    newest = max(await rows_of(Scan), key=lambda scan: scan.id)
    assert (newest.read_url_count, newest.partial, newest.scope) == (100, True, "filtered")
    read = [row.url_count for row in await rows_of(SitemapScan) if row.scan_id == newest.id]
    assert read == [100]
    (domain,) = await rows_of(Domain)
    (sitemap,) = await rows_of(Sitemap)
    stored = 200 if known else 100
    assert (domain.url_count, domain.distinct_url_count, sitemap.url_count) == (stored,) * 3
    assert (newest.url_count, newest.distinct_url_count) == (stored,) * 2


async def test_a_scan_does_not_count_urls_that_are_stored_but_no_longer_listed() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 5))}) as server:
        await scan_server(server)
        server.pages["/sitemap.xml"] = urlset(pages("a", 2))
        job = await scan_server(server)
    assert counts(job.result_data) == (2, 2, [])
    assert job.result_data is not None
    assert [sitemap["url_count"] for sitemap in job.result_data["sitemaps"]] == [2]
    (domain,) = await rows_of(Domain)
    assert (domain.url_count, domain.distinct_url_count) == (2, 2)
