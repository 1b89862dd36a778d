"""A worker crashes before or after each COMMIT of a scan with all kinds of changes: none is lost."""

from __future__ import annotations

import httpx
import pytest

from siteatlas.processor import recorder
from tests.catalog.database.runs import finish, scan, start_and_crash
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.crashes import crash_simulation
from tests.fixtures.feed import FeedClient, Mirror, differences, event_lines

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow, pytest.mark.timeout(300)]

MANY = [f"/many{number:05d}" for number in range(150)]
NEW = [f"/new{number:05d}" for number in range(130)]
A = [f"/a{number:02d}" for number in range(30)]
B = [f"/b{number:02d}" for number in range(20)]


def first_version(site: ChangingSite) -> None:
    site.add("/index.xml", children=["/a.xml", "/b.xml", "/many.xml"])
    site.add("/a.xml", A)
    site.add("/b.xml", B)
    site.add("/many.xml", MANY)


def second_version(site: ChangingSite) -> list[str]:
    """Changes of every kind, in several batches of rows; what the feed must say of them."""
    site["/a.xml"].drop("/a00", "/a01")
    site["/b.xml"].put("/a01", "/a02")
    site["/b.xml"].put("/b00", date="2026-11-09")
    site["/many.xml"].drop(*MANY[:40])
    site["/many.xml"].put(*NEW)
    site["/index.xml"].children = ["/a.xml", "/b.xml", "/many.xml", "/c.xml"]
    site.add("/c.xml", ["/c00"])
    return [
        "removed /a00 /a.xml (complete)",
        "moved /a01 /b.xml from /a.xml",
        "duplicate_added /a02 /b.xml",
        "changed /b00 /b.xml (lastmod)",
        *(f"removed {page} /many.xml (complete)" for page in MANY[:40]),
        *(f"added {page} /many.xml" for page in NEW),
        "sitemap_added /c.xml",
        "added /c00 /c.xml",
    ]


@pytest.mark.full
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_commit_loses_and_duplicates_nothing(
    after: bool, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 40)
    crashes = 0
    with crash_simulation():
        for commit in range(1, 40):
            crashed = await scan_with_crash(client, commit=commit, after=after)
            if not crashed:
                break
            crashes += 1
    assert crashes >= 4


async def scan_with_crash(client: httpx.AsyncClient, *, commit: int, after: bool) -> bool:
    """Whether the worker of a second scan crashed there; the feed is right in any case."""
    async with ChangingSite() as site:
        first_version(site)
        await scan(site)
        feed = FeedClient(client, site.host_port, limit=1000)
        head = await feed.head()
        expected = second_version(site)
        job_id, crashed = await start_and_crash(site, commit=commit, after=after)
        between = await Mirror.of(feed)
        assert (await finish(site, job_id)).status == "completed"
    events = await feed.events(after=head)
    found = differences(event_lines(events, site.base), expected)
    assert not found, f"commit {commit}, after {after}: {found[:10]}"
    assert await between.replay(events, feed.document) == (await feed.listing())[1]
    return crashed
