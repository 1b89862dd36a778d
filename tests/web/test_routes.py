"""Every page of the dashboard: on an empty installation, and with a site that was scanned."""

from __future__ import annotations

import csv

import httpx
import pytest
from fastapi import FastAPI

from siteatlas.access.keys import Scope
from siteatlas.storage.models import Domain, Sitemap
from siteatlas.storage.session import Database
from siteatlas.web.pages.domain import TABS
from tests.fixtures.access import application, client_with, make_key
from tests.fixtures.pipeline import index, pages, rows_of, scan_server, urlset
from tests.fixtures.queue import submit
from tests.fixtures.site_server import SiteServer
from tests.fixtures.web_pages import WebPage
from tests.web.conftest import ACCEPT

pytestmark = pytest.mark.usefixtures("database")

PAGES = [
    "/",
    "/domains",
    "/changes",
    "/findings",
    "/jobs",
    "/webhooks",
    "/system",
    "/keys",
    "/audit",
    "/sessions",
    "/scan",
]
NOT_IN_NAVIGATION = {"/scan", "/sessions"}


def shop() -> SiteServer:
    """An index with one good child and one that is not there."""
    return SiteServer(
        {
            "/robots.txt": "Sitemap: {base}/index.xml\n",
            "/index.xml": index(["{base}/a.xml", "{base}/gone.xml"]),
            "/a.xml": urlset(pages("a", 60)),
        }
    )


async def page_at(client: httpx.AsyncClient, path: str, status: int = 200) -> WebPage:
    """The parsed page at a path; checks what holds for every page."""
    response = await client.get(path)
    assert response.status_code == status, (path, response.text[:500])
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    page = WebPage(response)
    assert len(page.find("//h1")) == 1, path
    assert page.find("//title/text()")[0].endswith("Siteatlas")
    assert page.find("//@style") == []
    assert page.find("//script[not(@src)]") == []
    ids = page.find("//@id")
    assert sorted(ids) == sorted(set(ids)), path
    return page


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_of_an_empty_installation_says_what_to_do(
    client: httpx.AsyncClient, path: str
):
    page = await page_at(client, path)
    assert page.words().strip()


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_current_in_the_navigation(client: httpx.AsyncClient, path: str):
    page = await page_at(client, path)
    current = page.find("//nav[@aria-label='Main']//a[@aria-current='page']/@href")
    assert current == ([] if path in NOT_IN_NAVIGATION else [path])


async def test_every_view_of_a_scanned_site_can_be_opened(client: httpx.AsyncClient):
    async with shop() as server:
        job = await scan_server(server)
    (site,) = await rows_of(Domain)
    for tab in TABS:
        page = await page_at(client, f"/domains/{site.domain}?tab={tab}")
        assert page.find("//nav[@aria-label='Views of this site']/a[@aria-current]/text()")
    for sitemap in await rows_of(Sitemap):
        await page_at(client, f"/sitemaps/{sitemap.id}")
    for path in ["/", "/domains", "/changes", "/findings", "/jobs", f"/jobs/{job.id}"]:
        page = await page_at(client, path)
        assert site.domain in page.words("//body") or path == "/findings"


async def test_links_of_pages_lead_to_pages(client: httpx.AsyncClient):
    async with shop() as server:
        await scan_server(server)
    (site,) = await rows_of(Domain)
    seen, waiting = set[str](), ["/", f"/domains/{site.domain}"]
    while waiting:
        path = waiting.pop()
        if path in seen or len(seen) > 60:
            continue
        seen.add(path)
        response = await client.get(path)
        assert response.status_code < 400, path
        if "text/html" in response.headers["content-type"]:
            links = WebPage(response).find("//main//a/@href")
            waiting += [link for link in links if link.startswith("/") and "/api/" not in link]
    assert len(seen) > 20


async def test_urls_can_be_filtered_and_paged(client: httpx.AsyncClient):
    async with shop() as server:
        await scan_server(server)
    (site,) = await rows_of(Domain)
    base = f"/domains/{site.domain}?tab=urls"
    first = await page_at(client, base)
    assert len(first.find("//tbody/tr")) == 50
    (following,) = first.find("//a[@rel='next']/@href")
    assert len((await page_at(client, following)).find("//tbody/tr")) == 10
    hit = await page_at(client, f"{base}&contains=page-59")
    assert len(hit.find("//tbody/tr")) == 1
    none = await page_at(client, f"{base}&contains=nothing-like-it")
    assert "No URL matches" in none.words()


async def test_the_urls_of_a_filter_can_be_exported(client: httpx.AsyncClient):
    async with shop() as server:
        await scan_server(server)
    (site,) = await rows_of(Domain)
    page = await page_at(client, f"/domains/{site.domain}?tab=urls&contains=page-5")
    (href,) = page.find("//main//a[.='CSV']/@href")
    response = await client.get(href)
    assert response.headers["content-type"].startswith("text/csv")
    shown = page.find("//td[@class='url']/a/@title")
    exported = [row["url"] for row in csv.DictReader(response.text.splitlines())]
    assert sorted(exported) == sorted(shown)
    assert len(shown) == 11
    whole = await page_at(client, f"/domains/{site.domain}?tab=urls")
    (href,) = whole.find("//main//a[.='CSV']/@href")
    assert len((await client.get(href)).text.splitlines()) == 61


async def test_a_url_leads_to_its_history(client: httpx.AsyncClient):
    entry = "<urlset><url><loc>{{base}}/a</loc><lastmod>{}</lastmod></url></urlset>"
    content = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": entry.format("2026-01-01")}
    async with SiteServer(content) as server:
        await scan_server(server)
        server.pages["/a.xml"] = entry.format("2026-02-02")
        await scan_server(server)
    (site,), (document,) = await rows_of(Domain), await rows_of(Sitemap)
    listed = await page_at(client, f"/domains/{site.domain}?tab=urls")
    (href,) = listed.find("//td[@class='url']/a/@href")
    in_sitemap = await page_at(client, f"/sitemaps/{document.id}")
    assert in_sitemap.find("//td[@class='url']/a/@href") == [href]
    page = await page_at(client, href)
    assert page.find("//h1/text()") == [f"http://{site.domain}/a"]
    assert page.find("//div[@class='figure'][span[.='First seen']]//time")
    rows = "//section[@aria-labelledby='changes-title']//tbody/tr"
    cells = [cell.text_content() for cell in page.find(f"{rows}/td")]
    assert cells[1:4] == ["changed", "lastmod: 2026-01-01", "lastmod: 2026-02-02"]
    assert page.find(f"{rows}//a[.='2']/@href") == ["/changes/2"]
    unknown = await page_at(client, f"/domains/{site.domain}/url?url=https://a.example/")
    assert "This URL is not stored for this site." in unknown.words()


async def test_the_history_of_a_url_shows_that_it_was_removed_and_came_back(
    client: httpx.AsyncClient,
):
    content = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(pages("a", 3))}
    async with SiteServer(content) as server:
        await scan_server(server)
        for listed in (2, 3):
            server.pages["/a.xml"] = urlset(pages("a", listed))
            await scan_server(server)
    (site,) = await rows_of(Domain)
    listed_urls = await page_at(client, f"/domains/{site.domain}?tab=urls&contains=page-2")
    page = await page_at(client, listed_urls.find("//td[@class='url']/a/@href")[0])
    rows = page.find("//section[@aria-labelledby='changes-title']//tbody/tr")
    assert [row.xpath("string(td[2])").split() for row in rows] == [
        ["back"],
        ["removed", "complete"],
    ]


async def test_the_search_field_promises_what_it_finds(client: httpx.AsyncClient):
    page = await page_at(client, "/")
    assert page.find("//input[@id='search']/@placeholder") == ["Site, part of a URL, job number"]


async def test_a_partial_scan_explains_itself(client: httpx.AsyncClient):
    async with shop() as server:
        job = await scan_server(server)
    page = await page_at(client, f"/jobs/{job.id}")
    notice = page.words("//section[contains(@class, 'notice warn')]")
    assert "http_not_found" in notice


async def test_the_summary_of_a_site_whose_scans_failed_promises_nothing_wrong(
    client: httpx.AsyncClient,
):
    async with SiteServer({}) as server:
        await scan_server(server)
        await scan_server(server)
    (site,) = await rows_of(Domain)
    page = await page_at(client, f"/domains/{site.domain}")
    assert "The chart appears after the second successful scan." in page.words()
    last_change = "//div[@class='figure'][span[.='Last change']]"
    assert page.find(f"{last_change}//time") == []
    assert page.words(last_change).strip() == "Last change–"


async def test_the_last_scans_have_a_legend_with_signs(client: httpx.AsyncClient):
    async with shop() as server:
        await scan_server(server)
        server.pages["/index.xml"] = index(["{base}/a.xml"])
        await scan_server(server)
    (site,) = await rows_of(Domain)
    page = await page_at(client, f"/domains/{site.domain}")
    legend = page.words("//div[@class='figure'][span[.='Last scans']]/span[@class='delta']")
    assert legend == "✓1 completed !1 partial height: duration"


async def test_a_failed_scan_shows_what_was_tried(client: httpx.AsyncClient):
    async with SiteServer({}) as server:
        job = await scan_server(server)
    page = await page_at(client, f"/jobs/{job.id}")
    assert "no_sitemap" in page.words("//section[@role='alert']")
    tried = page.find("//section[@aria-labelledby='tried-title']//tbody/tr")
    assert len(tried) > 3


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/domains/nowhere.example", 404, "domain_not_found"),
        ("/jobs/12345", 404, "job_not_found"),
        ("/jobs/not-a-job", 422, "input_invalid"),
        ("/domains?cursor=junk", 422, "cursor_invalid"),
        ("/no/such/page", 404, "not_found"),
    ],
)
async def test_an_error_is_a_page_with_its_code_and_a_way_back(
    client: httpx.AsyncClient, path: str, status: int, code: str
):
    response = await client.get(path)
    assert response.status_code in {status, 400}
    page = WebPage(response)
    assert code in page.words("//body")
    assert page.find("//main//a[@href='/']")


async def test_a_page_without_a_database_says_so_and_can_be_tried_again(
    cut_off_client: httpx.AsyncClient,
):
    response = await cut_off_client.get("/domains?sort=name&contains=%C3%A9")
    assert response.status_code == 503
    assert "text/html" in response.headers["content-type"]
    (link,) = WebPage(response).find("//main//a[.='Try again']")
    assert link.get("href") == "/domains?sort=name&contains=%C3%A9"


@pytest.mark.parametrize("path", PAGES)
async def test_a_key_without_the_scope_scan_is_not_offered_to_scan(app: FastAPI, path: str):
    await make_key(Scope.ADMIN)
    async with client_with(app, await make_key(Scope.READ)) as reader:
        page = WebPage(await reader.get(path, headers=ACCEPT))
    assert page.find("//form[@action='/scan']") == []
    assert page.find("//a[@href='/scan']") == []
    if path == "/scan":
        assert "Your key cannot submit scans: it needs the scope scan." in page.words()


async def test_a_hostile_name_is_shown_as_text(client: httpx.AsyncClient):
    server = SiteServer(
        {
            "/robots.txt": "Sitemap: {base}/a.xml\n",
            "/a.xml": urlset(["{base}/?q=&lt;script&gt;alert(1)&lt;/script&gt;"]),
        }
    )
    async with server:
        await scan_server(server)
    (site,) = await rows_of(Domain)
    page = await page_at(client, f"/domains/{site.domain}?tab=urls")
    assert "<script>alert(1)</script>" in page.words("//body")


async def test_a_program_gets_problem_details_where_a_browser_gets_a_page(
    client: httpx.AsyncClient,
):
    response = await client.get("/no/such/page", headers={"Accept": "application/json"})
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == "not_found"


async def test_the_page_of_patterns_is_for_development_only(
    client: httpx.AsyncClient, database: Database
):
    assert (await client.get("/_patterns")).status_code == 404
    app = application(database, log_level="debug")
    async with client_with(app) as developer:
        page = await page_at(developer, "/_patterns")
    assert len(page.find("//svg")) >= 5


async def test_every_page_shows_the_notice_of_the_settings(
    client: httpx.AsyncClient, database: Database
):
    assert "Ask <Ann>" not in (await page_at(client, "/")).words()
    async with client_with(application(database, notice="Ask <Ann>.")) as other:
        for path in ("/", "/domains", "/system"):
            assert "Ask <Ann>." in (await page_at(other, path)).words("//main")


@pytest.mark.parametrize("days", ["1", "7", "30", "90", "", "junk"])
async def test_the_overview_shows_the_changes_of_a_range(client: httpx.AsyncClient, days: str):
    content = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(pages("a", 5))}
    async with SiteServer(content) as server:
        await scan_server(server)
        server.pages["/a.xml"] = urlset(pages("a", 9))
        await scan_server(server)
    page = await page_at(client, f"/?days={days}")
    (label,) = page.find("//g[@class='mark'][rect[@class='added']]/@aria-label")
    assert label.endswith("4 added, 0 removed")


async def test_an_index_that_lists_itself_is_shown_as_a_tree(client: httpx.AsyncClient):
    content = {
        "/robots.txt": "Sitemap: {base}/index.xml\n",
        "/index.xml": index(["{base}/other.xml", "{base}/a.xml"]),
        "/other.xml": index(["{base}/other.xml", "{base}/index.xml", "{base}/a.xml"]),
        "/a.xml": urlset(pages("a", 3)),
    }
    async with SiteServer(content) as server:
        await scan_server(server)
    (site,) = await rows_of(Domain)
    page = await page_at(client, f"/domains/{site.domain}?tab=tree")
    shown = page.words("//main")
    assert [name for name in ("index.xml", "other.xml", "a.xml") if name not in shown] == [], shown


async def test_a_sitemap_and_the_tree_show_how_many_urls_were_listed_before(
    client: httpx.AsyncClient,
):
    content = {
        "/robots.txt": "Sitemap: {base}/a.xml\n",
        "/a.xml": urlset(pages("a", 3)),
    }
    async with SiteServer(content) as server:
        await scan_server(server)
        server.pages["/a.xml"] = urlset(pages("a", 5))
        await scan_server(server)
    (site,), (document,) = await rows_of(Domain), await rows_of(Sitemap)
    tree = await page_at(client, f"/domains/{site.domain}?tab=tree")
    page = await page_at(client, f"/sitemaps/{document.id}")
    for shown in (tree, page):
        assert len(shown.find("//main//svg[@class='chart spark']//polyline")) == 1
    reads = "//section[.//h2[.='Last reads']]//tbody/tr/td[@class='number'][1]/text()"
    assert page.find(reads) == ["5", "3"]


async def test_changes_can_be_filtered_by_events_of_documents_and_domains(
    client: httpx.AsyncClient,
):
    content = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(pages("a", 3))}
    async with SiteServer(content) as server:
        await scan_server(server)
        server.pages["/robots.txt"] = "Sitemap: {base}/a.xml\nDisallow: /private\n"
        await scan_server(server)
        await scan_server(server)
    (site,) = await rows_of(Domain)
    for base in ("/changes?", f"/domains/{site.domain}?tab=changes&"):
        page = await page_at(client, f"{base}kinds=robots_changed")
        assert page.find("//section[@id='publications']//li/@id") == ["seq-2"]
        chosen = "//nav[@aria-label='Kinds of changes']/a[@aria-current]"
        assert page.words(chosen).split() == ["Other", "1"]
    events = await page_at(client, "/changes/2")
    assert events.find("//a[.='what changed']/@href") == [f"/domains/{site.domain}?tab=robots"]


async def test_the_versions_of_a_robots_file_have_names_of_their_own(client: httpx.AsyncClient):
    content = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(pages("a", 3))}
    async with SiteServer(content) as server:
        await scan_server(server)
        server.pages["/robots.txt"] = "Sitemap: {base}/a.xml\nDisallow: /private\n"
        await scan_server(server)
    (site,) = await rows_of(Domain)
    page = await page_at(client, f"/domains/{site.domain}?tab=robots")
    names = page.find("//section[.//details]/@aria-label")
    assert len(set(names)) == len(names) == 2


async def test_the_summary_shows_sections_and_months(client: httpx.AsyncClient):
    entries = [("{base}/shop/" + str(n), "2026-03-05") for n in range(6)]
    entries += [("{base}/blog/" + str(n), "2026-01-20") for n in range(3)]
    listed = "".join(f"<url><loc>{url}</loc><lastmod>{day}</lastmod></url>" for url, day in entries)
    content = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": f"<urlset>{listed}</urlset>"}
    async with SiteServer(content) as server:
        await scan_server(server)
    (site,) = await rows_of(Domain)
    page = await page_at(client, f"/domains/{site.domain}")
    assert page.find("//table[@class='bars']//a/text()") == ["/shop/", "/blog/"]
    labels = page.find("//section[@aria-labelledby='months-title']//g/@aria-label")
    assert labels == ["2026-01: 3", "2026-02: 0", "2026-03: 6"]
    months = page.words("//section[@aria-labelledby='months-title']")
    assert "0 URLs without a date" in months


@pytest.mark.parametrize(("path", "rows"), [("/domains", "domain-rows"), ("/jobs", "job-rows")])
async def test_a_later_page_of_a_list_updates_itself(
    client: httpx.AsyncClient, path: str, rows: str
):
    for number in range(110):
        await submit(f"site{number}.example.com")
    first = WebPage(await client.get(path))
    (following,) = set(first.find("//a[contains(@href, 'cursor=')]/@href"))
    second = WebPage(await client.get(following))
    assert second.find(f"//*[@id='{rows}']/@hx-get") == [following]


async def test_the_children_of_an_unknown_sitemap_are_not_found(client: httpx.AsyncClient):
    response = await client.get("/sitemaps/0d4f5cbb-6c5c-4b8e-9c0f-5d6a4f3a2b11/children")
    assert response.status_code == 404
