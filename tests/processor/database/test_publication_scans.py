"""One job from its submission to the stored rows, over real HTTP and a real database."""

from __future__ import annotations

import httpx
import pytest
from aiohttp import web

from siteatlas.processor import publication
from siteatlas.scanner.crawl.site_scan import NAMED_REFUSED
from siteatlas.storage.models import (
    LOCAL_USER_ID,
    Candidate,
    Domain,
    JobAttempt,
    Scan,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapUrl,
)
from tests.fixtures.pipeline import (
    compressed,
    index,
    pages,
    rows_of,
    scan_server,
    settings_for,
    submit_server,
    urlset,
    work,
)
from tests.fixtures.queue import job_of
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")


def shop() -> SiteServer:
    """robots.txt, an index, one plain and one compressed child."""
    server = SiteServer(
        {
            "/robots.txt": "Sitemap: {base}/index.xml\n",
            "/index.xml": index(["{base}/a.xml", "{base}/b.xml.gz"]),
            "/a.xml": urlset(pages("a", 30)),
        }
    )
    server.pages["/b.xml.gz"] = lambda _request: compressed(server, urlset(pages("b", 70)))
    return server


@pytest.mark.criterion(
    "owner-is-a-user", "processor-writes-all", "content-stored", "valid-sitemaps"
)
async def test_a_valid_site_is_stored_with_job_domain_and_owner_on_every_document() -> None:
    async with shop() as server:
        job = await scan_server(server)
    assert (job.status, job.progress, job.error) == ("completed", 1.0, None)
    sitemaps = {sitemap.url.rsplit("/", 1)[1]: sitemap for sitemap in await rows_of(Sitemap)}
    assert {name: sitemap.url_count for name, sitemap in sitemaps.items()} == {
        "index.xml": 0,
        "a.xml": 30,
        "b.xml.gz": 70,
    }
    for sitemap in sitemaps.values():
        assert sitemap.last_job_id == job.job_id
        assert sitemap.created_by == LOCAL_USER_ID
        assert sitemap.domain_id == job.domain_id
        assert sitemap.status == "completed"
    assert sitemaps["index.xml"].type == "index"
    assert sitemaps["index.xml"].discovery_method == "robots_txt"
    assert sitemaps["a.xml"].discovery_method == "sitemap_index"
    assert len(await rows_of(SitemapLink)) == 2
    urls = await rows_of(SitemapUrl)
    assert len(urls) == 100
    assert all(url.lastmod is not None and url.removed_at is None for url in urls)


@pytest.mark.parametrize(("most", "truncated"), [(2, True), (3, False)])
async def test_a_result_that_leaves_documents_out_says_so(monkeypatch, most: int, truncated: bool):
    monkeypatch.setattr(publication, "MAX_LISTED_SITEMAPS", most)
    async with shop() as server:
        job = await scan_server(server)
    assert job.result_data is not None
    assert (len(job.result_data["sitemaps"]), job.result_data["sitemap_count"]) == (most, 3)
    assert job.result_data["sitemaps_truncated"] is truncated


@pytest.mark.criterion("result-stored", "processor-writes-all", "domain-status")
async def test_the_result_contains_counts_and_the_documents() -> None:
    async with shop() as server:
        job = await scan_server(server, max_pages=5000)
    assert job.result_data is not None
    result = {key: job.result_data[key] for key in ("max_pages", "sitemap_count", "url_count")}
    assert result == {"max_pages": 5000, "sitemap_count": 3, "url_count": 100}
    assert job.result_data["partial"] is False
    assert {s["url_count"] for s in job.result_data["sitemaps"]} == {70, 30, 0}
    (scan,) = await rows_of(Scan)
    assert (scan.state, scan.url_count, scan.published_seq) == ("published", 100, 1)
    (domain,) = await rows_of(Domain)
    assert (domain.url_count, domain.sitemap_count, domain.last_scan_status) == (
        100,
        3,
        "completed",
    )
    assert domain.origin == server.base


async def test_a_second_scan_of_the_same_site_writes_no_url_twice_and_keeps_first_seen() -> None:
    async with shop() as server:
        await scan_server(server)
        before = {(u.sitemap_id, u.url_hash): u.first_seen_at for u in await rows_of(SitemapUrl)}
        job = await scan_server(server)
    after = {(u.sitemap_id, u.url_hash): u.first_seen_at for u in await rows_of(SitemapUrl)}
    assert job.status == "completed"
    assert after == before
    assert len(await rows_of(Sitemap)) == 3
    assert [scan.published_seq for scan in await rows_of(Scan)] == [1, 2]


async def test_a_second_scan_adds_what_is_new_and_updates_what_changed() -> None:
    async with shop() as server:
        await scan_server(server)
        server.pages["/a.xml"] = urlset(pages("a", 31), lastmod="2026-11-09")
        await scan_server(server)
    dates = {
        u.url.rsplit("-", 1)[1]: u.lastmod for u in await rows_of(SitemapUrl) if "/a/" in u.url
    }
    assert len(dates) == 31
    assert {str(date)[:10] for date in dates.values()} == {"2026-11-09"}


async def test_a_url_listed_twice_in_a_document_is_stored_once() -> None:
    listed = ["{base}/x", "{base}/y", "{base}/x"]
    async with SiteServer({"/sitemap.xml": urlset(listed)}) as server:
        job = await scan_server(server)
    assert job.result_data is not None
    assert job.result_data["url_count"] == 2
    assert len(await rows_of(SitemapUrl)) == 2


async def test_a_url_in_two_documents_counts_twice_but_is_one_distinct_url() -> None:
    site = {
        "/robots.txt": "Sitemap: {base}/a.xml\nSitemap: {base}/b.xml\n",
        "/a.xml": urlset(["{base}/x", "{base}/y"]),
        "/b.xml": urlset(["{base}/y", "{base}/z"]),
    }
    async with SiteServer(site) as server:
        job = await scan_server(server)
    assert job.result_data is not None
    assert (job.result_data["url_count"], job.result_data["distinct_url_count"]) == (4, 3)


async def test_an_empty_sitemap_is_a_sitemap_without_urls() -> None:
    async with SiteServer({"/sitemap.xml": urlset([])}) as server:
        job = await scan_server(server)
    assert job.status == "completed"
    assert job.result_data is not None
    assert (job.result_data["sitemap_count"], job.result_data["url_count"]) == (1, 0)


@pytest.mark.criterion("invalid-sitemaps")
async def test_an_invalid_document_and_a_valid_one_make_the_scan_partial() -> None:
    site = {
        "/robots.txt": "Sitemap: {base}/good.xml\nSitemap: {base}/bad.xml\n",
        "/good.xml": urlset(pages("good", 5)),
        "/bad.xml": "<html><body>Not here</body></html>",
    }
    async with SiteServer(site) as server:
        job = await scan_server(server)
    assert job.status == "completed"
    assert job.result_data is not None
    assert job.result_data["partial"] is True
    assert job.result_data["reasons"] == ["html_instead"]
    states = {s.state: s.error_code for s in await rows_of(SitemapScan)}
    assert states == {"complete": None, "unread": "html_instead"}
    bad = next(s for s in await rows_of(Sitemap) if s.url.endswith("bad.xml"))
    assert (bad.status, bad.error_code) == ("failed", "html_instead")


@pytest.mark.criterion("invalid-sitemaps")
async def test_a_cut_document_keeps_its_complete_entries() -> None:
    whole = urlset(pages("a", 10))
    async with SiteServer({"/sitemap.xml": whole[: len(whole) - 60]}) as server:
        job = await scan_server(server)
    assert job.result_data is not None
    assert (job.status, job.result_data["partial"], job.result_data["url_count"]) == (
        "completed",
        True,
        9,
    )


@pytest.mark.criterion("failures-isolated", "processor-writes-all", "domain-status")
async def test_a_site_without_a_sitemap_fails_with_the_reason_and_its_candidates() -> None:
    async with SiteServer() as server:
        job = await scan_server(server)
    assert (job.status, job.error_code) == ("failed", "no_sitemap")
    assert job.error
    candidates = await rows_of(Candidate)
    assert len(candidates) > 5
    assert {candidate.verdict for candidate in candidates} == {"rejected"}
    (domain,) = await rows_of(Domain)
    assert (domain.last_scan_status, domain.last_error_code) == ("failed", "no_sitemap")
    (scan,) = await rows_of(Scan)
    assert (scan.state, scan.error_code) == ("failed", "no_sitemap")


async def test_the_url_limit_of_the_job_cuts_the_scan_and_says_so() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 500))}) as server:
        job = await scan_server(server, max_pages=120)
    assert job.result_data is not None
    assert (job.result_data["url_count"], job.result_data["partial"]) == (120, True)
    assert len(await rows_of(SitemapUrl)) == 120


async def test_a_document_that_the_limit_of_the_job_cuts_is_completed_and_limited(
    client: httpx.AsyncClient,
) -> None:
    site = {f"/{name}.xml": urlset(pages(name, 100)) for name in "abcdef"}
    site["/robots.txt"] = "Sitemap: {base}/index.xml\n"
    site["/index.xml"] = index(f"{{base}}/{name}.xml" for name in "abcdef")
    async with SiteServer(site) as server:
        job = await scan_server(server, max_pages=120)
        first = await listed(client, server)
        await scan_server(server)
        whole = await listed(client, server)
        await scan_server(server, max_pages=120)
        later = await listed(client, server)
    assert job.result_data is not None
    assert job.result_data["reasons"] == ["url_limit"]
    assert first.pop("/index.xml") == ("completed", False, 0)
    assert set(first.values()) <= {
        ("completed", False, 100),
        ("completed", True, 20),
        ("pending", True, 0),
    }
    assert ("completed", True, 20) in first.values()
    assert len(whole) == 7
    assert {(status, limited) for status, limited, _ in whole.values()} == {("completed", False)}
    assert {status for status, _, _ in later.values()} == {"completed"}
    assert sum(limited for _, limited, _ in later.values()) == 1


async def listed(client: httpx.AsyncClient, server: SiteServer) -> dict[str, tuple[str, bool, int]]:
    """The documents of a site as the API shows them: status, limited, number of URLs."""
    answer = await client.get(f"/api/v3/domains/{server.host_port}/sitemaps")
    return {
        one["url"].removeprefix(server.base): (one["status"], one["limited"], one["url_count"])
        for one in answer.json()["items"]
    }


async def test_a_site_that_asks_us_to_come_back_is_snoozed_without_losing_an_attempt() -> None:
    busy = web.Response(status=429, headers={"Retry-After": "120"})
    async with SiteServer({"/robots.txt": lambda _request: busy}) as server:
        job = await scan_server(server)
    assert (job.status, job.attempt, job.snoozes) == ("pending", 0, 1)
    assert 100 < (job.run_at - job.updated_at).total_seconds() < 130
    (attempt,) = await rows_of(JobAttempt)
    assert (attempt.outcome, attempt.error_code) == ("snoozed", "rate_limited")


@pytest.mark.criterion("errors-handled")
async def test_an_unreachable_site_waits_for_another_attempt_with_the_error_visible() -> None:
    async with SiteServer() as server:
        submitted = await submit_server(server)
    await work(settings_for(server))
    job = await job_of(submitted.id)
    assert (job.status, job.attempt, job.error_code) == ("pending", 1, "connection_failed")


async def test_one_document_can_be_scanned_alone() -> None:
    async with shop() as server:
        job = await scan_server(server, document=f"{server.base}/a.xml")
        assert "/index.xml" not in server.paths
    assert job.result_data is not None
    assert (job.status, job.result_data["url_count"]) == ("completed", 30)


async def test_a_document_that_is_listed_but_not_asked_for_leaves_no_open_frontier() -> None:
    async with SiteServer(
        {
            "/robots.txt": "Sitemap: {base}/index.xml\n",
            "/index.xml": index(["{base}/a.xml", "{base}/old.xml"]),
            "/a.xml": urlset(pages("a", 3)),
            "/old.xml": lambda _request: web.Response(status=301, headers={"Location": "/a.xml"}),
        }
    ) as server:
        job = await scan_server(server)
    assert job.result_data is not None
    assert (job.result_data["url_count"], job.result_data["partial"]) == (3, False)
    assert "pending" not in {scan.state for scan in await rows_of(SitemapScan)}


async def test_a_site_that_names_only_private_documents_keeps_what_was_looked_at() -> None:
    robots = "Sitemap: http://169.254.169.254/latest/meta-data\n"
    async with SiteServer({"/robots.txt": robots}) as server:
        job = await scan_server(server)
    assert (job.status, job.error_code) == ("failed", "egress_denied")
    assert job.error == NAMED_REFUSED
    kept = {row.url: row.reason for row in await rows_of(Candidate)}
    assert kept["http://169.254.169.254/latest/meta-data"] == "egress_denied"
    assert len(kept) > 1
