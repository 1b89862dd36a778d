"""The list of changes in the dashboard: a filter that matches little still leads to the end."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import select

from siteatlas.catalog import newest_changes as newest_numbers
from siteatlas.storage.models import Domain
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap
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
        " ".join(row.text_content().split())
        for row in page.find(
            f"{LIST}/ul/li//*[@class='item-head'][not(ancestor::details) or self::summary]"
        )
    ]
    held_row, single, changed, unchanged, first = rows
    assert "removals held" in held_row
    assert "no changes" not in held_row
    assert "no changes" in single
    assert "+2" in changed
    assert unchanged.startswith("2 scans without changes")
    assert first.startswith("2 first scans: 1 771 URLs")
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


CHIPS = "//nav[@aria-label='Kinds of changes']/a"


async def add_two_scans() -> None:
    """A scan of today that added 12 URLs and removed one, and one of 20 days ago."""
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        for age, added in ((20, 3), (0, 12)):
            when = datetime.now(UTC) - timedelta(days=age)
            counts = {"added": added, "removed": 1}
            scan = await add_published_scan(session, domain, finished_at=when, change_counts=counts)
            keys = range(100, 100 + added)
            await add_changes(session, scan, sitemap, keys, not_after=when)
            await add_changes(session, scan, sitemap, [1], "removed", not_after=when)


def chips_of(page: WebPage) -> str:
    """The groups of changes with their counts."""
    return " ".join(page.words("//nav[@aria-label='Kinds of changes']").split())


def shown_urls(page: WebPage) -> list[str]:
    """The signs and the URLs of the list."""
    lines = page.find(f"{LIST}//ul[@class='diff']/li")
    return [" ".join(line.text_content().split()) for line in lines]


@pytest.mark.parametrize("base", ["/changes?", "/domains/example.com?tab=changes&"])
async def test_a_period_has_totals_its_first_urls_and_a_file(client: httpx.AsyncClient, base: str):
    await add_two_scans()
    week = WebPage(await client.get(base))
    assert [" ".join(chip.text_content().split()) for chip in week.find(CHIPS)] == [
        "All",
        "Added 12",
        "Removed 1",
        "Changed 0",
        "Other 0",
    ]
    added = [f"+added: https://example.com/{number}" for number in range(100, 109)]
    assert shown_urls(week) == [*added, "−removed: https://example.com/1"]
    assert week.find(f"{LIST}//a[.='Show all 13']/@href") == ["/changes/2"]
    month = WebPage(await client.get(f"{base}period=30d&kinds=removed"))
    assert len(shown_urls(month)) == 2
    assert "Removed 2" in " ".join(month.words(f"{CHIPS}[@aria-current]").split())
    (file,) = month.find("//a[.='CSV']/@href")
    answer = await client.get(file)
    today = datetime.now(UTC).date()
    days = f"{today - timedelta(days=29)}-to-{today}"
    site = "example.com" if "example.com" in base else "all-sites"
    named = f'attachment; filename="{site}-changes-{days}.csv"'
    assert answer.headers["content-disposition"] == named
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [(row["kind"], row["url"]) for row in rows] == [("removed", "https://example.com/1")] * 2


async def test_the_address_of_the_page_is_its_whole_state(client: httpx.AsyncClient):
    await add_two_scans()
    page = WebPage(await client.get("/changes?period=yesterday&kinds=added"))
    (fixed,) = page.find("//a[.='Link to these days']/@href")
    assert "kinds=added" in fixed
    async with transaction() as session:
        domain = (await session.scalars(select(Domain))).one()
        later = {"finished_at": datetime.now(UTC), "change_counts": {"added": 5}}
        await add_published_scan(session, domain, **later)
    assert "Added 17" in chips_of(WebPage(await client.get("/changes?period=yesterday")))
    shared = WebPage(await client.get(fixed))
    assert shown_urls(shared) == shown_urls(page)
    assert len(shown_urls(page)) == 10
    assert shared.find(f"{LIST}/ul/li/@id") == ["seq-2"]
    assert "Added 12" in chips_of(shared)
    days = WebPage(await client.get(fixed.replace("until=2", "until=x")))
    assert "Added 17" in chips_of(days)
    (taken_out,) = shared.find(f"{CHIPS}[starts-with(., 'Added')]/@href")
    assert "until=2" in taken_out
    assert shared.find("//a[.='CSV']/@href")[0].count("until=2") == 1
    assert shared.find("//nav[@aria-label='Period']/a[@aria-current]") == []
    today = datetime.now(UTC).date().isoformat()
    assert shared.find("//input[@name='to']/@value") == [today]
    last = WebPage(await client.get("/domains/example.com?tab=changes&period=last"))
    assert last.find(f"{LIST}/ul/li/@id") == ["seq-3"]
    earlier = WebPage(await client.get("/changes?to=2020-01-31"))
    assert "No scan was published in this period" in earlier.words(LIST)


@pytest.mark.parametrize("query", ["from=yesterday", "from=2026-02-01&to=2026-01-31"])
async def test_days_that_are_no_period_are_refused(client: httpx.AsyncClient, query: str):
    assert (await client.get(f"/changes?{query}")).status_code == 422


async def test_a_group_is_added_to_the_filter_or_taken_out(client: httpx.AsyncClient):
    page = WebPage(await client.get("/changes?period=all&kinds=added,removed"))
    chosen = [
        " ".join(chip.text_content().split()) for chip in page.find(f"{CHIPS}[@aria-current]")
    ]
    assert chosen == ["Added 0", "Removed 0"]
    (taken_out,) = page.find(f"{CHIPS}[starts-with(., 'Added')]/@href")
    assert taken_out == "/changes?period=all&kinds=removed"


async def test_one_scan_is_shown_by_group_with_totals_and_a_file(client: httpx.AsyncClient):
    await add_two_scans()
    page = WebPage(await client.get("/changes/2?kinds=removed"))
    assert "Added 12" in " ".join(page.words("//nav[@aria-label='Kinds of changes']").split())
    assert len(page.find("//ul[@class='diff']/li")) == 1
    (file,) = page.find("//a[.='CSV']/@href")
    answer = await client.get(file)
    assert len(answer.text.splitlines()) == 2
    assert answer.headers["content-disposition"] == 'attachment; filename="changes-2.csv"'


async def test_an_open_page_asks_for_the_newest_number_only(client: httpx.AsyncClient):
    await add_two_scans()
    for base in ("/changes?", "/domains/example.com?tab=changes&"):
        page = WebPage(await client.get(f"{base}kinds=added"))
        (address,) = page.find(f"{LIST}/@hx-get")
        mark = await client.get(address)
        assert mark.text.strip().startswith('<div id="new-mark"')
        assert 'data-newest="2"' in mark.text
