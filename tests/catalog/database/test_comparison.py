"""Two scans are compared although URLs moved between them, more than once and back."""

from __future__ import annotations

from random import Random
from typing import Any

import httpx
import pytest

from siteatlas.catalog import comparison as scan_comparison
from siteatlas.catalog.comparison import compare_scans
from tests.catalog.database.runs import scan
from tests.fixtures.changes import add_changes, add_published_scan
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.database import transaction
from tests.fixtures.feed import FeedClient, Listing, with_differences
from tests.fixtures.records import add_domain, add_sitemap

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow, pytest.mark.timeout(120)]

DOCUMENTS = ["/a.xml", "/b.xml", "/c.xml", "/d.xml"]
PAGE = "/page"


def new_site(site: ChangingSite, *listed_by: str) -> None:
    """A site with four documents, some of which list the page."""
    site.add("/index.xml", children=DOCUMENTS)
    for path in DOCUMENTS:
        site.add(path, [f"{path}/{number}" for number in range(10)])
    list_page(site, *listed_by)


def list_page(site: ChangingSite, *documents: str, date: str = "2026-11-01") -> None:
    """Let exactly these documents list the page."""
    for path in DOCUMENTS:
        site[path].entries.pop(PAGE, None)
    for path in documents:
        site[path].put(PAGE, date=date)


async def compared(client: httpx.AsyncClient, *listed_by: tuple[str, ...]) -> list[str]:
    """The differences between the first and the last scan; the page is dated by the scan."""
    async with ChangingSite() as site:
        new_site(site)
        for number, documents in enumerate(listed_by, 1):
            list_page(site, *documents, date=f"2026-11-{number:02d}")
            await scan(site)
        feed = FeedClient(client, site.host_port)
        scans = sorted((await feed.scans()).values())
        return [in_words(one, site.base) for one in await feed.differences(scans[0], scans[-1])]


def in_words(one: dict[str, Any], base: str) -> str:
    """A difference: its kind, where, from where, and the days of the states."""
    days = [(one[side] or {}).get("lastmod", "-")[8:10] for side in ("before", "after")]
    moved = ["from", one["previous_sitemap"]] if one["previous_sitemap"] else []
    words = [one["kind"], one["sitemap"], *moved, " to ".join(days)]
    return " ".join(words).replace(base, "")


A, B, C, D = ((path,) for path in DOCUMENTS)


@pytest.mark.parametrize(
    ("listed_by", "expected"),
    [
        (((), A, B, C), ["added /c.xml  to 04"]),
        ((A, B, C, D), ["moved /d.xml from /a.xml 01 to 04"]),
        ((A, A, B, C), ["moved /c.xml from /a.xml 01 to 04"]),
        ((A, B, A), ["changed /a.xml 01 to 03"]),
        ((A, B, C, A), ["changed /a.xml 01 to 04"]),
        ((A, B, A, C), ["moved /c.xml from /a.xml 01 to 04"]),
        ((A, B, ()), ["removed /a.xml 01 to "]),
        ((A, B, (), B), ["removed /a.xml 01 to ", "back /b.xml  to 04"]),
        ((A, B, (*A, *B)), ["changed /a.xml 01 to 03", "duplicate_added /b.xml  to 03"]),
        (((), A, B, ()), []),
    ],
)
async def test_a_url_is_followed_back_to_where_it_was_first(
    client: httpx.AsyncClient, listed_by: tuple[tuple[str, ...], ...], expected: list[str]
):
    found = await compared(client, *listed_by)
    assert sorted(found) == sorted(expected)


async def random_history(site: ChangingSite, feed: FeedClient, seed: int) -> dict[int, Listing]:
    """What is listed after each of some scans, between which five pages come, move and leave."""
    random = Random(seed)
    new_site(site)
    states: dict[int, Listing] = {}
    for day in range(1, 9):
        for page in [f"/page{number}" for number in range(5)]:
            if random.random() < 0.6:
                chosen = random.sample(DOCUMENTS, k=random.choice([0, 1, 1, 1, 2]))
                for path in DOCUMENTS:
                    site[path].entries.pop(page, None)
                for path in chosen:
                    site[path].put(page, date=f"2026-11-{day:02d}")
        await scan(site)
        number, listing = await feed.listing()
        states[number] = listing
    return states


@pytest.mark.full
@pytest.mark.parametrize(("limit", "seed"), [(10_000, 0), (10_000, 1), (15, 2)])
async def test_an_earlier_state_with_the_differences_is_the_later_one(
    client: httpx.AsyncClient, seed: int, limit: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scan_comparison, "MAX_EXAMINED", limit)
    async with ChangingSite() as site:
        feed = FeedClient(client, site.host_port)
        states = await random_history(site, feed, seed)
        scans = await feed.scans()
        for first in states:
            assert await feed.past_listing(first) == (first, states[first])
            for last in (number for number in states if number >= first):
                found = await feed.differences(scans[first], scans[last])
                assert with_differences(states[first], found) == states[last], (first, last)
                assert all(one["previous_sitemap_id"] != one["sitemap_id"] for one in found)


async def test_few_changes_are_compared_at_once_however_many_are_retained(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(scan_comparison, "MAX_EXAMINED", 8)
    async with transaction() as session:
        domain = await add_domain(session, baseline_scan_id=1)
        sitemap = await add_sitemap(session, domain)
        scans = [await add_published_scan(session, domain) for _ in range(10)]
        for place, one in enumerate(scans):
            await add_changes(session, one, sitemap, range(8 * place, 8 * place + 8))
        page = await compare_scans(session, domain.id, (scans[4].id, scans[5].id))
        assert [item.url.rpartition("/")[2] for item in page.items] == [*map(str, range(40, 48))]
        assert (page.next_cursor, page.examined) == (None, 8)
        longer = await compare_scans(session, domain.id, (scans[4].id, scans[6].id))
        assert longer.next_cursor is not None
