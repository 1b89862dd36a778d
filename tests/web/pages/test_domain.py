"""The page of a site says why its last scan failed or is partial, and how its URLs are counted."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import insert

from siteatlas.catalog.problems import FoundProblem, record_problems
from siteatlas.storage.models import Domain, LastScanStatus, SitemapScan
from siteatlas.storage.session import AsyncSession
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")

BOX = "//section[@aria-label='Sitemaps that could not be read']"


async def add_partial_site(session: AsyncSession) -> Domain:
    domain = await add_domain(session, last_scan_status="partial", url_count=10)
    reasons = ["server_error", "url_limit"]
    scan = await add_published_scan(session, domain, partial=True, reasons=reasons)
    later = await add_published_scan(session, domain, scope="document")
    for path, state, code, status in (
        ("good.xml", "complete", None, 200),
        ("cut.xml", "cut", "url_limit", 200),
        ("bad.xml", "unread", "server_error", 500),
    ):
        sitemap = await add_sitemap(session, domain, path)
        row = {"scan_id": scan.id, "sitemap_id": sitemap.id, "state": state}
        row |= {"error_code": code, "http_status": status}
        await session.execute(insert(SitemapScan), [row, row | {"scan_id": later.id}])
    return domain


@pytest.mark.parametrize("tab", ["summary", "problems"])
async def test_a_partial_site_lists_its_unread_sitemaps_with_reasons_and_links(
    client: httpx.AsyncClient, tab: str
):
    async with transaction() as session:
        await add_partial_site(session)
    page = WebPage(await client.get(f"/domains/example.com?tab={tab}"))
    assert "The last scan is partial: 2 sitemaps could not be read completely." in page.words(BOX)
    unread, cut = (" ".join(row.text_content().split()) for row in page.find(f"{BOX}//li"))
    assert "bad.xml ✕not read The site returned a server error. HTTP 500" in unread
    assert "cut.xml" in cut
    assert len(page.find(f"{BOX}//li/a[starts-with(@href, '/sitemaps/')]")) == 2


@pytest.mark.parametrize("tab", ["summary", "problems"])
async def test_a_reason_that_names_no_sitemap_is_explained_too(client: httpx.AsyncClient, tab: str):
    async with transaction() as session:
        domain = await add_domain(session, last_scan_status="partial")
        await add_published_scan(session, domain, partial=True, reasons=["robots_unreachable"])
    page = WebPage(await client.get(f"/domains/example.com?tab={tab}"))
    assert page.find(BOX) == []
    assert "Nothing is read until robots.txt can be fetched" in page.words("//section")


async def test_the_reasons_of_the_past_are_not_shown(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_partial_site(session)
        domain.last_scan_status = LastScanStatus.COMPLETED
    page = WebPage(await client.get("/domains/example.com"))
    assert page.find("//section[contains(@class, 'notice')]") == []


async def test_the_list_of_sites_that_need_attention_has_reasons(client: httpx.AsyncClient):
    async with transaction() as session:
        await add_partial_site(session)
        await add_domain(
            session, "down.example", last_scan_status="failed", last_error_code="no_sitemap"
        )
        await add_domain(session, "fine.example", last_scan_status="completed")
    page = WebPage(await client.get("/domains?state=attention"))
    down, partial = (row.text_content() for row in page.find("//tbody/tr"))
    assert "No sitemap was found in robots.txt" in down
    assert "The site returned a server error." in partial
    assert "Reason" not in WebPage(await client.get("/domains")).words("//thead")


async def test_urls_that_a_sitemap_repeats_are_named_beside_the_count(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session, url_count=152, distinct_url_count=150)
        scan = await add_published_scan(session, domain)
        sitemap = await add_sitemap(session, domain)
        found = FoundProblem(sitemap.id, "duplicate_url", 1, [])
        await record_problems(session, scan.id, [found], [])
    figures = WebPage(await client.get("/domains/example.com")).words("//div[@class='figures']")
    assert "150 distinct URLs, 1 repeat within a sitemap not counted" in figures
