"""Single rules of the change feed, each with a separate site and the events that it requires."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from siteatlas.storage.models import Job
from tests.catalog.database.runs import scan, stop_midway
from tests.fixtures.changing_site import ChangingSite, Fault
from tests.fixtures.feed import FeedClient, event_lines
from tests.fixtures.passing_time import let_minutes_pass
from tests.fixtures.pipeline import settings_for, submit_server, work
from tests.fixtures.queue import job_of

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]

DAY = 24 * 60
LATER = 61
A = [f"/a{number:02d}" for number in range(30)]
B = [f"/b{number:02d}" for number in range(30)]


class Watched:
    """A site with two documents, and what the feed says of each scan."""

    def __init__(self, site: ChangingSite, feed: FeedClient) -> None:
        self.site = site
        self.feed = feed
        self.shown = 0

    async def news(self) -> list[str]:
        """What the feed says since the last time."""
        events = await self.feed.events(after=self.shown)
        self.shown = max([self.shown, *(event["seq"] for event in events)])
        return event_lines(events, self.site.base)

    async def scan(self, **options: object) -> list[str]:
        """Scan, and give what the feed says of it."""
        if options:
            await self.job(**options)
        else:
            await scan(self.site)
        return await self.news()

    async def scan_hasty(self) -> list[str]:
        """Scan where a removal may be confirmed at once by the next scan."""
        await submit_server(self.site)
        await work(settings_for(self.site, removal_confirm_minutes=0))
        return await self.news()

    async def job(self, **options: object) -> Job:
        """Scan with options of the job."""
        submitted = await submit_server(self.site, **options)
        await work(settings_for(self.site))
        return await job_of(submitted.id)


@pytest_asyncio.fixture
async def watched(client: httpx.AsyncClient) -> AsyncIterator[Watched]:
    """A site after its first scan."""
    async with ChangingSite() as site:
        site.add("/index.xml", children=["/a.xml", "/b.xml"])
        site.add("/a.xml", A)
        site.add("/b.xml", B)
        started = Watched(site, FeedClient(client, site.host_port))
        await started.scan()
        yield started


async def test_a_first_scan_that_is_not_complete_is_no_baseline(client: httpx.AsyncClient):
    async with ChangingSite() as site:
        site.add("/index.xml", children=["/a.xml", "/b.xml"])
        site.add("/a.xml", A)
        site.add("/b.xml", B, fault=Fault.SERVER_ERROR)
        one = Watched(site, FeedClient(client, site.host_port))
        assert await one.scan() == []
        site["/a.xml"].drop("/a00")
        site["/b.xml"].fault = None
        assert await one.scan() == ["baseline /a.xml", "baseline /b.xml", "baseline /index.xml"]
        site["/a.xml"].put("/a99")
        assert await one.scan() == ["added /a99 /a.xml"]


async def test_a_hold_ends_after_a_week(watched: Watched):
    watched.site["/a.xml"].drop("/a00")
    watched.site["/b.xml"].fault = Fault.SERVER_ERROR
    assert await watched.scan() == ["removals_held 1"]
    await let_minutes_pass(6 * DAY)
    assert await watched.scan() == []
    await let_minutes_pass(2 * DAY)
    assert await watched.scan() == ["removed /a00 /a.xml (timeout)"]


async def test_half_of_the_pages_may_leave_at_once_and_no_more(watched: Watched):
    watched.site["/a.xml"].entries = {}
    watched.site["/a.xml"].put(*A[:1])
    assert await watched.scan() == [f"removed {page} /a.xml (complete)" for page in A[1:]]
    watched.site["/b.xml"].entries = {}
    watched.site["/b.xml"].put(*B[:9])
    assert await watched.scan() == ["removals_held 21"]


async def test_the_read_that_missed_urls_does_not_confirm_that_they_are_removed(watched: Watched):
    watched.site["/a.xml"].entries = {}
    assert await watched.scan_hasty() == ["removals_held 30"]
    watched.site["/a.xml"].put(*A)
    assert await watched.scan_hasty() == []
    watched.site["/a.xml"].entries = {}
    assert await watched.scan_hasty() == ["removals_held 30"]
    assert await watched.scan_hasty() == [f"removed {page} /a.xml (confirmed)" for page in A]


async def test_a_later_scan_that_did_not_read_the_document_confirms_nothing(watched: Watched):
    watched.site["/a.xml"].entries = {}
    assert await watched.scan_hasty() == ["removals_held 30"]
    watched.site["/a.xml"].fault = Fault.SERVER_ERROR
    assert await watched.scan_hasty() == []
    watched.site["/a.xml"].fault = None
    assert await watched.scan_hasty() == [f"removed {page} /a.xml (confirmed)" for page in A]


async def test_the_scan_that_found_a_document_vanished_does_not_confirm_it(watched: Watched):
    watched.site.add("/index.xml", children=["/b.xml"])
    watched.site.documents.pop("/a.xml")
    assert await watched.scan_hasty() == ["removals_held 30"]
    gone = [f"removed {page} /a.xml (confirmed)" for page in A]
    assert await watched.scan_hasty() == [*gone, "sitemap_gone /a.xml"]


async def test_a_scan_that_met_a_limit_removes_nothing(watched: Watched):
    watched.site["/a.xml"].drop("/a00")
    assert await watched.scan(max_pages=20) == []
    assert await watched.scan() == ["removed /a00 /a.xml (complete)"]


async def test_a_scan_of_one_document_removes_nothing_at_once(watched: Watched):
    watched.site["/a.xml"].drop("/a00")
    watched.site["/a.xml"].put("/a99")
    news = await watched.scan(document=f"{watched.site.base}/a.xml")
    assert "added /a99 /a.xml" in news
    assert [line for line in news if line.startswith("removed")] == []
    assert await watched.scan() == ["removed /a00 /a.xml (complete)"]


async def test_a_failed_scan_of_a_site_that_nobody_watches_is_no_event(client: httpx.AsyncClient):
    async with ChangingSite() as site:
        site.add("/index.xml", children=[])
        one = Watched(site, FeedClient(client, site.host_port))
        await one.scan(max_attempts=1)
        site.robots_status = 503
        assert await one.scan(max_attempts=1) == []


async def test_dates_that_move_alone_in_two_reads_are_believed_no_more(watched: Watched):
    watched.site["/a.xml"].put(*A, date="2026-11-02")
    assert await watched.scan() == [f"changed {page} /a.xml (lastmod)" for page in A]
    watched.site["/a.xml"].put(*A, date="2026-11-03")
    assert "lastmod_distrusted /a.xml" in await watched.scan()
    watched.site["/a.xml"].put(*A, date="2026-11-04")
    watched.site["/a.xml"].put("/a99")
    assert await watched.scan() == ["added /a99 /a.xml"]


async def test_a_document_that_changes_between_two_attempts_is_reported_as_last_read(
    watched: Watched,
):
    watched.site["/a.xml"].put("/a98")
    assert await stop_midway(watched.site, "/b.xml") is not None
    watched.site["/a.xml"].drop("/a98")
    watched.site["/a.xml"].put("/a99")
    await work(settings_for(watched.site))
    first = await watched.news()
    later = await watched.scan()
    assert sorted(first + later) == [
        "added /a98 /a.xml",
        "added /a99 /a.xml",
        "removed /a98 /a.xml (complete)",
    ]


async def test_a_validator_that_lies_does_not_hide_a_change_forever(watched: Watched):
    site = watched.site
    site.frozen_etag = '"always the same"'
    await watched.scan()
    site["/a.xml"].put("/a99")
    news: list[str] = []
    for _ in range(12):
        news += await watched.scan()
    assert news == ["added /a99 /a.xml"]


async def test_a_forgotten_site_leaves_an_event_and_starts_over(
    watched: Watched, client: httpx.AsyncClient
):
    everything = FeedClient(client)
    answer = await client.delete(f"/api/v3/domains/{watched.site.host_port}")
    assert answer.status_code in {200, 202, 204}, answer.text
    forgotten = (await everything.events())[-1]
    assert (forgotten["kind"], forgotten["domain"]) == (
        "domain_forgotten",
        watched.site.host_port,
    )
    watched.shown = forgotten["seq"]
    assert await watched.scan() == [
        "baseline /a.xml",
        "baseline /b.xml",
        "baseline /index.xml",
    ]


async def test_a_page_listed_twice_in_one_document_has_its_latest_date(watched: Watched):
    twice = "<url><loc>{0}/a00</loc><lastmod>{1}</lastmod></url>"
    served = watched.site["/a.xml"]
    served.more = [twice.format(watched.site.base, date) for date in ("2026-11-07", "2026-11-03")]
    assert await watched.scan() == ["changed /a00 /a.xml (lastmod)"]
    served.more = served.more[::-1]
    assert await watched.scan() == []
