"""What was recorded becomes older, as if time had gone by since."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from siteatlas.catalog.newest_changes import ChangesOverTime, Period
from siteatlas.storage.models import Domain, Scan, SitemapUrl, Worker
from siteatlas.storage.schema import make_older
from siteatlas.storage.session import get_session
from tests.fixtures.pipeline import pages, rows_of, scan_server, urlset
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")


async def let_days_go_by(count: int) -> None:
    async with get_session() as session, session.begin():
        await make_older(session, timedelta(days=count))


async def recorded() -> list[datetime]:
    """Times that get older, then two that do not."""
    (site,), (scan,) = await rows_of(Domain), await rows_of(Scan)
    (url, *_), (worker,) = await rows_of(SitemapUrl), await rows_of(Worker)
    assert scan.finished_at is not None
    assert url.lastmod is not None
    return [
        site.created_at,
        scan.finished_at,
        url.first_seen_at,
        url.lastmod,
        worker.last_seen_at,
    ]


async def test_scans_with_days_between_them_are_changes_of_several_days():
    content = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(pages("a", 5))}
    async with SiteServer(content) as server:
        for count in (5, 9, 7):
            server.pages["/a.xml"] = urlset(pages("a", count))
            await scan_server(server)
            await let_days_go_by(2)
    async with get_session(snapshot=True) as session:
        days = await ChangesOverTime().read(session, Period.DAY, 7)
    assert [(one.added, one.removed, one.scans) for one in days] == [
        (0, 0, 1),
        (0, 0, 0),
        (4, 0, 1),
        (0, 0, 0),
        (0, 2, 1),
        (0, 0, 0),
        (0, 0, 0),
    ]


async def test_what_a_site_says_of_its_dates_and_processes_that_run_stay_as_they_are():
    content = {"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(pages("a", 2))}
    async with SiteServer(content) as server:
        await scan_server(server)
    async with get_session() as session, session.begin():
        session.add(Worker(id="w", hostname="h", pid=1, boot_id="b", version="1", slots=1))
    before = await recorded()
    await let_days_go_by(3)
    after = await recorded()
    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == [
        *[timedelta(days=-3)] * 3,
        *[timedelta(0)] * 2,
    ]
