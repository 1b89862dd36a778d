"""The list of changes in the dashboard: a filter that matches little still leads to the end."""

from __future__ import annotations

import httpx
import pytest

from siteatlas.catalog import newest_changes as newest_numbers
from tests.fixtures.changes import add_event, add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")

LIST = "//section[@id='publications']"


@pytest.mark.parametrize("base", ["/changes?", "/domains/example.com?tab=changes&"])
async def test_a_page_without_hits_leads_to_older_publications(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, base: str
):
    monkeypatch.setattr(newest_numbers, "MAX_SCANS", 2)
    async with transaction() as session:
        domain = await add_domain(session)
        for counts in ({"removed": 1}, {}, {}, {}):
            await add_published_scan(session, domain, change_counts=counts)
    page = WebPage(await client.get(f"{base}kinds=removed"))
    assert page.find(f"{LIST}//li") == []
    assert "The next page searches older scans" in page.words(LIST)
    (following,) = page.find(f"{LIST}//a[@rel='next']/@href")
    older = WebPage(await client.get(following))
    assert older.find(f"{LIST}//li/@id") == ["seq-1"]
    assert older.find(f"{LIST}//a[@rel='next']") == []


async def test_a_failed_scan_and_a_removed_site_are_not_confused(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        await add_event(session, domain, "scan_failed", data={"error_code": "no_sitemap"})
        await add_event(session, domain, "domain_forgotten")
    page = WebPage(await client.get("/changes"))
    failed, removed = page.words("//li[@id='seq-1']"), page.words("//li[@id='seq-2']")
    assert "scan failed No sitemap was found in robots.txt" in " ".join(failed.split())
    assert "site removed" not in failed
    assert "site removed" in removed
    opened = WebPage(await client.get("/changes/1"))
    assert "No sitemap was found in robots.txt" in opened.words()
    assert opened.words("//main").count("scan failed") == 1
    of_site = WebPage(await client.get("/domains/example.com?tab=changes"))
    assert "scan failed" in of_site.words("//li[@id='seq-1']")


async def test_first_scans_and_scans_without_changes_are_folded(client: httpx.AsyncClient):
    async with transaction() as session:
        domains = [await add_domain(session, name) for name in ("a.example", "b.example")]
        for domain, count in zip(domains, (1_671, 100), strict=True):
            scan = await add_published_scan(session, domain, url_count=count, change_counts={})
            domain.baseline_scan_id = scan.id
        for counts in ({}, {}, {"added": 2}, {}):
            await add_published_scan(session, domains[1], change_counts=counts)
        held = await add_published_scan(session, domains[1], change_counts={})
        await add_event(session, domains[1], "removals_held", held)
    page = WebPage(await client.get("/changes"))
    rows = [
        " ".join(row.text_content().split()) for row in page.find(f"{LIST}/ul/li/details/summary")
    ]
    held_row, single, changed, unchanged, first = rows
    assert "removals held" in held_row
    assert "no changes" not in held_row
    assert "no changes" in single
    assert "+2" in changed
    assert unchanged.startswith("#3–4 2 scans without changes")
    assert first.startswith("#1–2 2 first scans: 1 771 URLs")
    assert "a.example first scan: 1 671 URLs" in " ".join(page.words("//li[@id='seq-1']").split())


async def test_a_scan_before_the_first_complete_one_is_not_called_unchanged(
    client: httpx.AsyncClient,
):
    async with transaction() as session:
        domain = await add_domain(session)
        await add_published_scan(session, domain, url_count=122, partial=True, change_counts={})
    shown = WebPage(await client.get("/changes")).words("//li[@id='seq-1']")
    assert "122 URLs, not compared: no complete scan yet" in shown
    assert "partial" in shown
