"""The page of a site: its state and reason, its numbers, what changed, when and why it is scanned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from sqlalchemy import insert

from siteatlas.catalog import url_lists
from siteatlas.catalog.problems import FoundProblem, record_problems
from siteatlas.processor.entries import section_of
from siteatlas.storage.models import (
    ChangeKind,
    Domain,
    LastScanStatus,
    RobotsFile,
    SitemapScan,
    UrlChange,
)
from siteatlas.storage.session import AsyncSession
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.findings import found, judge
from tests.fixtures.pipeline import index, rows_of, scan_server, urlset
from tests.fixtures.records import add_candidate, add_domain, add_sitemap, add_urls
from tests.fixtures.site_server import SiteServer
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


@pytest.mark.parametrize("tab", ["summary", "findings"])
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


@pytest.mark.parametrize("tab", ["summary", "findings"])
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
    assert page.find("//section[contains(@class, 'notice')]/@class") == ["notice good"]


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
        repeated = FoundProblem(sitemap.id, "duplicate_url", 1, [])
        await record_problems(session, scan.id, [repeated], [])
    figures = WebPage(await client.get("/domains/example.com")).words("//div[@class='figures']")
    assert "150 distinct URLs, 1 repeat within a sitemap not counted" in figures


async def test_the_summary_shows_what_the_last_scan_changed(client: httpx.AsyncClient):
    content = {"/robots.txt": "Sitemap: {base}/i.xml\n", "/i.xml": index(["{base}/a.xml"])}
    paths = [f"shop/{n}" for n in range(6)] + ["blog/1", "about/", "odd/?u=https://x.example/y/z"]
    content["/a.xml"] = urlset([f"{{base}}/{path}" for path in paths])
    async with SiteServer(content) as server:
        await scan_server(server)
        (site,) = await rows_of(Domain)
        first = WebPage(await client.get(f"/domains/{site.domain}"))
        server.pages["/i.xml"] = index(["{base}/a.xml", "{base}/b.xml"])
        added = ["new/1/", "shop/a/b", "about/?q=/x/y", "shop/?", "/x", "s#/x"]
        server.pages["/a.xml"] = urlset([f"{{base}}/{path}" for path in paths[2:] + added])
        server.pages["/b.xml"] = urlset(["{base}/blog/2"])
        await scan_server(server)
    assert "in the last scan" not in first.words("//div[@class='figures']")
    assert first.find("//section[@aria-labelledby='latest-title']") == []
    page = WebPage(await client.get(f"/domains/{site.domain}"))
    assert "The last scan read everything." in page.words("//section")
    listed, sitemaps, *_ = (one.text_content() for one in page.find("//*[@class='figure']"))
    assert ("+5 in the last scan" in listed, "+1 in the last scan" in sitemaps) == (True, True)
    latest = page.words("//section[@aria-labelledby='latest-title']")
    assert "+7" in latest
    assert f"http://{site.domain}/about/?q=/x/y" in latest
    assert len(page.find("//ul[@class='diff']/li")) == 5
    rows = page.find("//section[@aria-labelledby='sections-title']//tbody/tr")
    changes = {
        row.xpath("string(td[1])"): "".join(row.xpath("td[5]//span[@title]/text()")) for row in rows
    }
    stored = {section: await section_changes(section) for section in changes}
    assert changes == stored
    assert changes["/shop/"] == "+2−2"
    assert [row.findtext(".//a") for row in rows if row.xpath("string(td[1])") == "/"] == [None]
    # Not the URLs that have this section elsewhere, such as /about/?q=/shop/.
    inside = urlencode({"contains": f"{site.domain}/shop/"})
    assert inside in "".join(rows[0].xpath("td[1]/a/@href"))


async def section_changes(section: str | None) -> str:
    """The changes of a section as the reader of documents counts them."""
    changes = [one.kind for one in await rows_of(UrlChange) if section_of(one.url) == section]
    signs = {"added": "+", "removed": "−"}
    found = ((sign, changes.count(ChangeKind(kind))) for kind, sign in signs.items())
    return "".join(f"{sign}{count}" for sign, count in found if count)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("columns", "due", "sentence"),
    [
        ({}, None, "No scan is planned: this site is not watched."),
        ({"paused": True}, HOUR, "No scan is planned: this site is paused."),
        ({}, 36 * HOUR, "Next scan in 1 day: this site is scanned every 24 hours, the usual"),
        ({"scan_interval_hours": 1}, HOUR, "is scanned every hour, its own interval."),
        ({"failures_in_a_row": 3}, HOUR, "usual interval, although 3 scans in a row failed."),
        ({}, -HOUR, "The next scan was due 1 hour ago and waits for the scheduler"),
    ],
)
async def test_the_next_scan_is_explained(
    client: httpx.AsyncClient, columns: dict[str, Any], due: timedelta | None, sentence: str
):
    async with transaction() as session:
        time = datetime.now(UTC) + due if due else None
        await add_domain(session, watched=due is not None, next_scan_at=time, **columns)
    page = WebPage(await client.get("/domains/example.com"))
    assert sentence in " ".join(page.words("//p[@id='next-scan']").split())
    assert "Not scanned yet." in page.words("//section")


async def test_a_scan_that_waits_is_named_on_the_page_of_its_site(client: httpx.AsyncClient):
    await client.post("/scan", data={"sites": "example.com"})
    page = WebPage(await client.get("/domains/example.com"))
    assert "A scan is queued and starts when a worker is free." in page.words(
        "//p[@id='next-scan']"
    )
    assert page.find("//p[@id='next-scan']/a/@href")[0].startswith("/jobs/")


async def test_addresses_where_siteatlas_looked_are_folded_after_ten(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        for number in range(60):
            await add_candidate(session, domain, f"{number}.xml")
        await add_candidate(session, domain, "sitemap.xml", verdict="accepted", http_status=200)
    page = WebPage(await client.get("/domains/example.com"))
    discovery = "//section[@aria-labelledby='discovery-title']"
    assert len(page.find(f"{discovery}/div//tbody/tr")) == 10
    assert "accepted" in page.words(f"{discovery}/div//tbody/tr[1]")
    assert page.words(f"{discovery}/details/summary") == "51 more addresses"
    assert len(page.find(f"{discovery}/details//tbody/tr")) == 51


async def add_findings(name: str, count: int, *paths: str) -> None:
    async with transaction() as session:
        domain = await add_domain(session, name)
        scan = await add_published_scan(session, domain)
        for path in paths:
            sitemap = await add_sitemap(session, domain, path)
            one = found("url-invalid", count, f"https://{name}/{path}/1")
            await judge(session, scan, sitemap.id, one)


async def test_the_findings_of_a_site_are_a_table_that_leads_to_their_documents(
    client: httpx.AsyncClient,
):
    await add_findings("example.com", 3, "a.xml", "b.xml")
    page = WebPage(await client.get("/domains/example.com?tab=problems"))
    (row,) = page.find("//tbody/tr")
    cells = [" ".join(cell.text_content().split()) for cell in row.xpath("td")]
    assert "error" in cells[0]
    assert cells[2:6] == ["6", "2", "2", "https://example.com/a.xml/1"]
    page = WebPage(await client.get(row.xpath("td/a/@href")[0]))
    rows = page.find("//section[@aria-label='Where this was found']//tbody/tr")
    documents = {row.xpath("string(td[1])"): row.text_content() for row in rows}
    assert sorted(documents) == ["/a.xml", "/b.xml"]
    assert "https://example.com/a.xml/1" in documents["/a.xml"]
    ticket = page.words("//textarea")
    assert ticket.startswith("## example.com: ")
    assert "https://example.com/b.xml: 3" in ticket


async def test_findings_are_accepted_for_a_reason_and_opened_again(client: httpx.AsyncClient):
    await add_findings("example.com", 3, "a.xml")
    route, tab = "/domains/example.com/findings", "/domains/example.com?tab=findings"
    refused = await client.post(route, data={"code": "url-invalid", "reason": " "})
    assert (refused.status_code, "Say why" in refused.text) == (422, True)
    done = await client.post(route, data={"code": "url-invalid", "reason": "the shop's file"})
    assert done.headers["location"] == f"{tab}&code=url-invalid"
    page = WebPage(await client.get(f"{tab}&code=url-invalid"))
    assert "accepted" in page.words("//tbody/tr[1]/td[1]")
    assert "the shop's file" in page.words("//section[@aria-label='Where this was found']")
    await client.post(route, data={"code": "url-invalid", "reopen": "on"})
    assert "accepted" not in WebPage(await client.get(tab)).words("//tbody/tr[1]")


async def test_the_findings_of_all_sites_name_the_sites_that_have_most(client: httpx.AsyncClient):
    await add_findings("few.example", 1, "a.xml")
    await add_findings("many.example", 7, "a.xml")
    page = WebPage(await client.get("/findings"))
    (row,) = page.find("//tbody/tr")
    cells = [" ".join(cell.text_content().split()) for cell in row.xpath("td")]
    assert cells[2:6] == ["8", "2", "2", "2: many.example, few.example"]
    links = row.xpath("td/a/@href")
    assert links[0] == "/domains/many.example?tab=findings&code=url-invalid"


async def add_robots_files(*texts: str) -> None:
    async with transaction() as session:
        domain = await add_domain(session, origin="https://example.com")
        for text in texts:
            values = {"domain_id": domain.id, "origin": "https://example.com"}
            session.add(RobotsFile(**values, content_hash=text, content=text, http_status=200))
            await session.flush()


OPEN = "User-agent: *\nAllow: /\n"
CLOSED = f"{OPEN}User-agent: GPTBot\nContent-Signal: ai-train=yes\nDisallow: /\nAllow: /open\n"


async def test_the_policy_shows_who_may_fetch_what_and_which_line_decides(
    client: httpx.AsyncClient,
):
    await add_robots_files(CLOSED)
    page = WebPage(await client.get("/domains/example.com?tab=policy"))
    rows = {row.text_content().split()[0]: row for row in page.find("//tbody/tr")}
    assert "✓ yes line 2" in " ".join(rows["Bingbot"].text_content().split())
    closed = " ".join(rows["GPTBot"].text_content().split())
    assert closed.startswith("GPTBot OpenAI")
    assert "AI training" in closed
    assert closed.endswith("gptbot ✕ no, except 1 line 5")
    (link,) = rows["GPTBot"].xpath(".//a/@href")
    assert link == "#line-5"
    assert page.find("//dt[@id='line-5']/following-sibling::dd[1]/text()") == ["Disallow: /"]
    assert rows["GPTBot"].xpath(".//td/@data-label") == ["Fetches for", "Rules for", "whole site"]


async def test_the_policy_can_be_asked_without_a_script(client: httpx.AsyncClient):
    await add_robots_files(CLOSED)
    page = WebPage(await client.get("/domains/example.com?tab=policy&agent=gptbot&path=/open<b>"))
    (row,) = page.find("//tbody/tr")
    assert "✓ yes line 6" in " ".join(row.text_content().split())
    assert page.find("//input[@name='path']/@value") == ["/open<b>"]
    assert page.find("//main//b") == []


async def test_faults_of_content_signals_are_shown_with_their_line(client: httpx.AsyncClient):
    await add_robots_files("User-agent: *\nContent-Signal: ai-train=yes, x=y\nDisallow: /\n")
    page = WebPage(await client.get("/domains/example.com?tab=policy"))
    words = page.words("//section[@aria-labelledby='usage-title']")
    assert "“x” is not a known signal." in words
    assert "ai-train=yes, but line 3 lets the agent fetch nothing." in words


async def test_the_history_of_robots_txt_names_whom_a_version_shut_out(client: httpx.AsyncClient):
    await add_robots_files(OPEN, CLOSED, OPEN)
    page = WebPage(await client.get("/domains/example.com?tab=robots"))
    newest, middle, first = (
        " ".join(section.text_content().split()) for section in page.find("//main//section")
    )
    assert "✓ opened for GPTBot: /" in newest
    assert "✕ closed for GPTBot: /" in middle
    assert "opened" not in first
    assert "closed" not in first


async def test_a_site_without_robots_txt_has_no_policy_yet(client: httpx.AsyncClient):
    await add_robots_files()
    page = WebPage(await client.get("/domains/example.com?tab=policy"))
    assert "No robots.txt is stored yet" in page.words()


async def add_dated_urls(count: int) -> None:
    """As many URLs, by number, each a day older than the one before; the first has no date."""
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        for number in range(count):
            row = [(number, f"https://example.com/{number:03}")]
            lastmod = datetime(2026, 3, 1, tzinfo=UTC) - timedelta(days=number) if number else None
            await add_urls(session, sitemap.id, row, lastmod=lastmod)


def names_of(page: WebPage) -> list[str]:
    """The last parts of the URLs on a page."""
    cells = page.find("//tbody/tr/td[1]")
    return [cell.text_content().strip().rsplit("/", 1)[-1] for cell in cells]


async def test_the_heads_of_urls_sort_and_then_turn_the_order(client: httpx.AsyncClient):
    await add_dated_urls(4)
    page = WebPage(await client.get("/domains/example.com?tab=urls&contains=example&state=all"))
    assert page.find("//th[@aria-sort]") == []
    for head, direction, expected in (
        ("URL", "ascending", ["000", "001", "002", "003"]),
        ("URL", "descending", ["003", "002", "001", "000"]),
        ("Lastmod", "descending", ["001", "002", "003", "000"]),
        ("Lastmod", "ascending", ["003", "002", "001", "000"]),
    ):
        (href,) = page.find(f"//th/a[starts-with(., '{head}')]/@href")
        assert "contains=example" in href
        assert "state=all" in href
        page = WebPage(await client.get(href))
        assert names_of(page) == expected
        assert page.find("//th[@aria-sort]/@aria-sort") == [direction]


async def test_the_order_of_urls_stays_with_the_next_page_and_a_filter(client: httpx.AsyncClient):
    await add_dated_urls(52)
    page = WebPage(await client.get("/domains/example.com?tab=urls&sort=-lastmod"))
    (href,) = page.find("//a[@rel='next']/@href")
    assert names_of(WebPage(await client.get(href))) == ["051", "000"]
    assert page.find("//form[@method='get']//input[@name='sort']/@value") == ["-lastmod"]
    assert any("sort=-lastmod" in href for href in page.find("//a[contains(., 'API')]/@href"))


async def test_more_listings_than_can_be_sorted_are_shown_in_stored_order(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    await add_dated_urls(52)
    monkeypatch.setattr(url_lists, "MAX_SORTED_URLS", 51)
    page = WebPage(await client.get("/domains/example.com?tab=urls&sort=-url"))
    assert "listings are not sorted: shown in stored order" in page.words()
    assert page.find("//th[@aria-sort]") == []
    assert names_of(page)[:2] == ["000", "001"]
    (href,) = page.find("//a[@rel='next']/@href")
    page = WebPage(await client.get(href))
    assert names_of(page) == ["050", "051"]
    assert "shown in stored order" in page.words()


async def test_an_order_that_does_not_exist_is_ignored(client: httpx.AsyncClient):
    await add_dated_urls(2)
    page = WebPage(await client.get("/domains/example.com?tab=urls&sort=size"))
    assert names_of(page) == ["000", "001"]
    assert "stored order" not in page.words()
