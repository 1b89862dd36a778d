"""The overview answers: what needs attention, what is new, what runs; an empty one asks for a site."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import insert

from siteatlas.access.authentication import VISIT_COOKIE
from siteatlas.storage.models import SitemapScan
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_job, add_sitemap
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
CASES = "//section[@aria-labelledby='answer']//li"


async def overview(client: httpx.AsyncClient, query: str = "") -> WebPage:
    answer = await client.get(f"/{query}")
    assert answer.status_code == 200
    return WebPage(answer)


def figures(page: WebPage) -> list[str]:
    return [" ".join(one.text_content().split()) for one in page.find("//a[@class='figure']")]


def remember(client: httpx.AsyncClient, ended: timedelta, seen: timedelta) -> None:
    """As if an earlier visit ended and this one was seen so long ago."""
    times = (int((datetime.now(UTC) - ago).timestamp()) for ago in (ended, seen))
    client.cookies.set(VISIT_COOKIE, "-".join(map(str, times)), domain="localhost.local", path="/")


async def test_an_empty_installation_asks_for_a_site_and_nothing_else(client: httpx.AsyncClient):
    page = await overview(client)
    assert page.words("//main//h1") == "Enter a site"
    assert page.find("//main//input[@type='text']/@placeholder") == ["example.com"]
    assert page.find("//main//h2 | //main//a | //main//nav | //main//svg") == []
    (form,) = page.find("//main//form")
    fields = {one.get("name"): one.get("value") for one in form.findall(".//input")}
    answer = await client.post(form.get("action"), data=fields | {"sites": "example.com"})
    assert answer.headers["location"].startswith("/jobs/")
    assert page.words("//main//h1") not in (await overview(client)).words()


async def test_an_installation_without_trouble_says_so(client: httpx.AsyncClient):
    async with transaction() as session:
        await add_domain(
            session, last_scan_status="completed", last_scan_at=datetime.now(UTC), url_count=7
        )
        await add_domain(session, "new.example")
    page = await overview(client)
    assert page.words("//h1").strip() == "✓ Everything was read"
    assert "7 URLs in 0 sitemaps. 1 site waits for the first scan" in page.words()
    assert page.find(CASES) == []


async def test_sites_in_trouble_stand_worst_first_with_a_reason_and_one_action(
    client: httpx.AsyncClient,
):
    async with transaction() as session:
        await add_domain(session, "fine.example", last_scan_status="completed")
        await add_domain(session, "held.example", last_scan_status="completed", missing_count=2)
        cut = await add_domain(session, "cut.example", last_scan_status="partial", url_count=5)
        partial = await add_domain(session, "partial.example", last_scan_status="partial")
        unread = []
        for site, code in ((cut, "url_limit"), (partial, "server_error")):
            scan = await add_published_scan(session, site, partial=True, reasons=[code])
            unread.append((await add_sitemap(session, site)).id)
            row = {"scan_id": scan.id, "sitemap_id": unread[-1], "state": "unread"}
            await session.execute(insert(SitemapScan), [row])
        for name, code, times in (("down", "timeout", 1), ("login", "blocked", 3)):
            await add_domain(
                session,
                f"{name}.example",
                last_scan_status="failed",
                last_error_code=code,
                failures_in_a_row=times,
            )
    page = await overview(client)
    assert page.words("//h1").strip() == "! 5 of 6 sites need attention"
    names = page.find(f"{CASES}//strong/text()")
    assert names == [f"{one}.example" for one in ("login", "down", "cut", "partial", "held")]
    reasons = [one.text_content() for one in page.find(f"{CASES}//p")]
    assert "The site returned a server error." in reasons[3]
    assert "2 URLs are missing; removals are held until they are proved." in reasons[4]
    actions = page.find(f"{CASES}/a[@class='button']/@href")
    settings = [f"/domains/{one}.example?tab=settings" for one in ("login", "cut")]
    assert actions == [*settings, f"/sitemaps/{unread[1]}"]
    forms = page.find(f"{CASES}/form/@action")
    assert forms == ["/domains/down.example/scan", "/domains/held.example/scan"]


async def test_many_sites_in_trouble_are_counted_and_lead_to_all(client: httpx.AsyncClient):
    async with transaction() as session:
        for number in range(12):
            await add_domain(session, f"{number}.example", last_scan_status="failed")
    page = await overview(client)
    assert len(page.find(CASES)) == 8
    (href,) = page.find("//a[.='Show all 12']/@href")
    assert len(WebPage(await client.get(href)).find("//tbody/tr")) == 12


async def test_what_is_new_since_the_last_visit_stands_beside_the_time_before(
    client: httpx.AsyncClient,
):
    now = datetime.now(UTC)
    async with transaction() as session:
        site = await add_domain(session)
        for ago, counts in (
            (9 * DAY, {}),
            (4 * DAY, {"added": 5, "changed": 1}),
            (2 * HOUR, {"added": 2, "removed": 3}),
        ):
            await add_published_scan(
                session, site, started_at=now - ago, finished_at=now - ago, change_counts=counts
            )
    assert "Last visit" not in (await overview(client)).words("//nav[@aria-label='Period']")
    remember(client, 9 * DAY, 3 * DAY)
    page = await overview(client)
    assert "New since your last visit, 3 days ago" in page.words("//h2")
    assert figures(page) == [
        "Added +2 −3 against 5 in the same period before",
        "Removed −3 +3 against 0 in the same period before",
        "Changed 0 −1 against 1 in the same period before",
        "Other 0 ±0 against 0 in the same period before",
    ]
    assert len(page.find("//li[starts-with(@id, 'scan-')]")) == 1
    assert "3 days ago" in (await overview(client)).words("//h2"), "the same visit"
    week = await overview(client, "?days=7")
    assert figures(week)[0] == "Added +7", "no scan is older than the week before"
    (href,) = week.find("//a[@class='figure'][1]/@href")
    chosen = "//nav[@aria-label='Kinds of changes']/a[@aria-current]"
    assert WebPage(await client.get(href)).words(chosen).split() == ["Added", "7"]


async def test_a_page_that_updates_itself_is_no_visit(client: httpx.AsyncClient):
    async with transaction() as session:
        await add_published_scan(session, await add_domain(session))
    remember(client, DAY, 5 * HOUR)
    before = dict(client.cookies)
    page = WebPage(await client.get("/", headers={"HX-Request": "true"}))
    assert "1 day ago" in page.words("//h2")
    assert dict(client.cookies) == before


@pytest.mark.parametrize("cookie", ["", "junk", "1-2-3", "9999999999-9999999999"])
async def test_a_cookie_that_tells_no_visit_is_not_believed(client: httpx.AsyncClient, cookie: str):
    async with transaction() as session:
        await add_domain(session)
    answer = await client.get("/", headers={"Cookie": f"{VISIT_COOKIE}={cookie}"})
    assert answer.status_code == 200
    assert "last visit" not in answer.text


async def test_running_jobs_are_shown_while_there_are_any(client: httpx.AsyncClient):
    async with transaction() as session:
        site = await add_domain(session)
    assert "Running" not in (await overview(client)).find("//h2/text()")
    async with transaction() as session:
        await add_job(session, site, status="processing", worker_id="w")
    assert "Running" in (await overview(client)).find("//h2/text()")
