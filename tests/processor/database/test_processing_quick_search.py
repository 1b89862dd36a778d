"""A schedule does not search a site again and again for sitemaps that a full search did not find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from sqlalchemy import update

from siteatlas.queue.fence import Priority
from siteatlas.scanner.discovery.home_page import guessed_paths
from siteatlas.storage.models import Candidate
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import settings_for, submit_server, urlset, work
from tests.fixtures.queue import job_of
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")


@pytest_asyncio.fixture
async def site() -> AsyncIterator[SiteServer]:
    """A site without any page."""
    async with SiteServer() as server:
        yield server


async def requests_of_scan(site: SiteServer, priority: Priority, error: str | None) -> int:
    site.requests.clear()
    job = await submit_server(site, priority=priority)
    await work(settings_for(site))
    assert (await job_of(job.id)).error_code == error
    return len(site.requests)


async def make_older(days: int) -> None:
    async with transaction() as session:
        await session.execute(
            update(Candidate).values(checked_at=Candidate.checked_at - timedelta(days=days))
        )


async def test_scheduled_scans_are_quick_for_a_month_after_a_full_search_found_nothing(
    site: SiteServer,
):
    full = len(guessed_paths())
    scheduled, nothing = Priority.SCHEDULED, "no_sitemap"
    assert await requests_of_scan(site, scheduled, nothing) > full
    assert await requests_of_scan(site, scheduled, nothing) <= 10
    assert await requests_of_scan(site, Priority.INTERACTIVE, nothing) > full
    await make_older(29)
    assert await requests_of_scan(site, scheduled, nothing) <= 10
    await make_older(2)
    assert await requests_of_scan(site, scheduled, nothing) > full


async def test_a_site_that_was_not_searched_or_has_a_sitemap_is_searched_fully(site: SiteServer):
    site.pages["/robots.txt"] = "Sitemap: /s.xml"
    site.pages["/s.xml"] = urlset([f"{site.base}/1"])
    await requests_of_scan(site, Priority.INTERACTIVE, None)
    site.pages.clear()
    assert await requests_of_scan(site, Priority.SCHEDULED, None) > len(guessed_paths())
