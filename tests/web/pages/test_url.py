"""The search for URLs of all sites, and a URL on a site with more sitemaps than are examined."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import httpx
import pytest

from siteatlas.catalog import url_lists as urls
from siteatlas.catalog.urls import url_hash
from siteatlas.web.pages import url
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.findings import found, judge
from tests.fixtures.records import add_domain, add_sitemap, add_urls
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")

URL = "https://example.com/a?b=1&c=2"
STATE = "//div[@class='figure'][span[.='State']]"
NOTICE = "//section[@class='notice warn']"


@pytest.fixture(autouse=True)
def two_sitemaps_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "MAX_EXAMINED", 2)


async def add_site(*states: str) -> None:
    """A site whose sitemaps, in the order of the list, list the URL, removed it or never did."""
    async with transaction() as session:
        domain = await add_domain(session)
        for number, state in enumerate(states, 1):
            sitemap = await add_sitemap(session, domain, f"{number}.xml", id=UUID(int=number))
            removed_at = datetime(2026, 2, 1, tzinfo=UTC) if state == "removed" else None
            if state != "never":
                row = (url_hash(URL), URL)
                await add_urls(session, sitemap.id, [row], removed_at=removed_at)


async def url_page(client: httpx.AsyncClient) -> WebPage:
    response = await client.get("/domains/example.com/url", params={"url": URL})
    assert response.status_code == 200
    return WebPage(response)


async def test_a_url_is_not_called_unknown_before_all_sitemaps_were_examined(
    client: httpx.AsyncClient,
):
    await add_site("never", "never", "listed")
    page = await url_page(client)
    assert "not stored" not in page.words()
    assert "Others may list this URL too." in page.words(NOTICE)
    (href,) = page.find(f"{NOTICE}//a/@href")
    (entry,) = (await client.get(href)).json()["items"]
    assert (entry["url"], entry["sitemap"]) == (URL, "https://example.com/3.xml")


@pytest.mark.parametrize(
    ("states", "state", "detail"),
    [
        (("removed", "never", "listed"), "unknown", "removed from the sitemaps examined"),
        (("removed", "listed", "listed"), "listed", "in at least 1 sitemap"),
        (("removed",), "removed", ""),
        (("listed",), "listed", "in 1 sitemap"),
    ],
)
async def test_the_state_of_a_url_is_that_of_all_sitemaps_or_called_unknown(
    client: httpx.AsyncClient, states: Sequence[str], state: str, detail: str
):
    await add_site(*states)
    page = await url_page(client)
    assert page.find(f"{STATE}/span[@class='value']/text()") == [state]
    assert page.words(f"{STATE}/span[@class='delta']") == detail
    assert bool(page.find(NOTICE)) == (len(states) > 2)


async def add_listings(**paths: str) -> None:
    """Sites by their first label, each with one URL."""
    async with transaction() as session:
        for number, (name, path) in enumerate(paths.items(), 1):
            domain = await add_domain(session, f"{name}.example", tags=[name])
            sitemap = await add_sitemap(session, domain, id=UUID(int=number))
            url = f"https://{name}.example{path}"
            await add_urls(session, sitemap.id, [(url_hash(url), url)])


async def test_a_text_that_no_site_has_leads_to_the_urls_of_all_sites(client: httpx.AsyncClient):
    await add_listings(one="/new-post-8", two="/about", three="/NEW-POST-81")
    found = await client.get("/search", params={"q": "new-post-8"}, follow_redirects=True)
    page = WebPage(found)
    assert page.find("//td[@class='url']/a/@title") == [
        "https://one.example/new-post-8",
        "https://three.example/NEW-POST-81",
    ]
    assert page.find("//input[@id='search']/@value") == ["new-post-8"]
    assert "2 URLs found among 3 stored URLs." in page.words()
    (call,) = page.find("//main//a[.='API call']/@href")
    answer = (await client.get(call)).json()
    assert [item["domain"] for item in answer["items"]] == ["one.example"]
    (file,) = page.find("//main//a[.='CSV']/@href")
    assert len((await client.get(file)).text.splitlines()) == 3


async def test_a_search_ends_at_its_bound_and_goes_on_from_there(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(url, "MAX_SEARCHED", 2)
    await add_listings(one="/a", two="/b", three="/found")
    page = WebPage(await client.get("/urls?contains=found"))
    assert "None of the 2 URLs searched so far contains this." in page.words()
    (following,) = page.find("//a[@rel='next']/@href")
    page = WebPage(await client.get(following))
    assert page.find("//td[@class='url']/a/@title") == ["https://three.example/found"]
    assert page.find("//a[@rel='next']") == []


async def test_a_search_can_be_for_the_sites_with_a_tag(client: httpx.AsyncClient):
    await add_listings(one="/x", two="/x")
    page = WebPage(await client.get("/urls?contains=/x&tag=two"))
    assert page.find("//tbody//td[2]/a/text()") == ["two.example"]


async def test_a_search_takes_the_name_that_the_list_of_sites_has(client: httpx.AsyncClient):
    await add_listings(one="/x", two="/y")
    page = WebPage(await client.get("/urls?q=/y"))
    assert page.find("//tbody//td[2]/a/text()") == ["two.example"]
    assert page.find("//input[@name='contains']/@value") == ["/y"]


@pytest.mark.parametrize("contains", ["", "nowhere"])
async def test_a_search_without_result_says_so(client: httpx.AsyncClient, contains: str):
    await add_listings(one="/x")
    page = WebPage(await client.get("/urls", params={"contains": contains}))
    expected = "no URL of any site contains this" if contains else "Enter a part of a URL"
    assert expected in page.words()


async def test_a_sitemap_with_findings_leads_to_those_of_its_site(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        scan = await add_published_scan(session, domain)
        cut = await add_sitemap(session, domain, "cut.xml", error_code="truncated")
        good = await add_sitemap(session, domain, "good.xml")
        await judge(session, scan, cut.id, found("url-invalid", 3))
    page = WebPage(await client.get(f"/sitemaps/{cut.id}"))
    box = "//section[@aria-label='Findings of this sitemap']"
    assert "1 finding in this sitemap:" in page.words(box)
    assert page.find(f"{box}//a/@href") == [
        "/domains/example.com?tab=findings&code=url-invalid",
        "/domains/example.com?tab=findings",
    ]
    advice = page.words("//section[@role='alert']/span")
    assert "If the transfer ended early" in advice
    assert "have the site generate its sitemap again" in advice
    assert WebPage(await client.get(f"/sitemaps/{good.id}")).find(box) == []
