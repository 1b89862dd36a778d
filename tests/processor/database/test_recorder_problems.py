"""Problems are stored with samples, end when they are gone, and dates stay as they were listed."""

from __future__ import annotations

import pytest

from siteatlas.scanner.reading.entries import restored_text
from siteatlas.storage.models import DomainProblem, Scan, SitemapScan, SitemapUrl
from tests.fixtures.pipeline import index, pages, rows_of, scan_server, urlset
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")


def site(content: str) -> SiteServer:
    return SiteServer({"/robots.txt": "Sitemap: {base}/s.xml\n", "/s.xml": content})


async def problems() -> dict[str, DomainProblem]:
    return {row.code: row for row in await rows_of(DomainProblem)}


async def texts() -> set[str | None]:
    return {restored_text(url.lastmod, url.lastmod_text) for url in await rows_of(SitemapUrl)}


async def test_a_problem_is_stored_with_samples_of_the_entries_that_have_it() -> None:
    urls = pages("a", 30)
    async with site(urlset([*urls, urls[3], urls[3]], lastmod="yesterday")) as server:
        await scan_server(server)
        base = server.base
    found = await problems()
    assert {code: row.count for code, row in found.items()} == {
        "lastmod_invalid": 32,
        "duplicate_url": 2,
    }
    first = urls[0].replace("{base}", base)
    samples = found["lastmod_invalid"].samples
    assert samples[0] == {"url": first, "value": "yesterday", "entry": 1}
    assert len(samples) == 20
    repeated = urls[3].replace("{base}", base)
    assert [sample["url"] for sample in found["duplicate_url"].samples] == [repeated]
    (scan,) = await rows_of(Scan)
    assert {(row.first_scan_id, row.last_scan_id) for row in found.values()} == {(scan.id, scan.id)}
    (read,) = await rows_of(SitemapScan)
    assert read.problems == {"lastmod_invalid": 32, "duplicate_url": 2}


async def test_a_problem_is_over_when_a_complete_read_no_longer_shows_it_and_may_come_back() -> (
    None
):
    good, bad = urlset(pages("a", 3)), urlset(pages("a", 3), lastmod="yesterday")
    async with site(bad) as server:
        await scan_server(server)
        server.pages["/s.xml"] = good
        await scan_server(server)
        over = (await problems())["lastmod_invalid"]
        server.pages["/s.xml"] = bad
        await scan_server(server)
        back = (await problems())["lastmod_invalid"]
    first, _, last = sorted(scan.id for scan in await rows_of(Scan))
    assert over.resolved_at is not None
    assert (over.first_scan_id, over.last_scan_id) == (first, first)
    assert back.resolved_at is None
    assert (back.first_scan_id, back.last_scan_id) == (first, last)


async def test_a_read_that_was_cut_resolves_nothing() -> None:
    async with site(urlset(pages("a", 3), lastmod="yesterday")) as server:
        await scan_server(server)
        server.pages["/s.xml"] = urlset(pages("a", 3)).replace("</urlset>", "<url><loc>")
        await scan_server(server)
    found = await problems()
    assert found["lastmod_invalid"].resolved_at is None
    assert (await rows_of(SitemapScan))[-1].state == "cut"


async def test_each_document_has_problems_of_its_own() -> None:
    async with site(index(["{base}/a.xml", "{base}/b.xml"])) as server:
        server.pages["/a.xml"] = urlset(pages("a", 3), lastmod="yesterday")
        server.pages["/b.xml"] = urlset(pages("b", 3), lastmod="tomorrow")
        await scan_server(server)
        server.pages["/b.xml"] = urlset(pages("b", 3))
        await scan_server(server)
    rows = await rows_of(DomainProblem)
    assert sorted(row.resolved_at is None for row in rows) == [False, True]
    assert {row.samples[0]["value"]: row.resolved_at is None for row in rows} == {
        "yesterday": True,
        "tomorrow": False,
    }


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        ("2025-12-28", "2025-12-28"),
        ("2025-12-28T00:00:00Z", None),
        ("2025-12-28T10:00:00+02:00", None),
        ("2026", "2026"),
        ("yesterday\nor so", "yesterday\nor so"),
    ],
)
async def test_a_date_is_stored_as_listed(listed: str, shown: str | None) -> None:
    async with site(urlset(pages("a", 2), lastmod=listed)) as server:
        await scan_server(server)
    assert await texts() == {shown}


async def test_a_change_of_precision_alone_is_stored() -> None:
    async with site(urlset(pages("a", 2), lastmod="2025-12-28")) as server:
        await scan_server(server)
        server.pages["/s.xml"] = urlset(pages("a", 2), lastmod="2025-12-28T00:00:00Z")
        await scan_server(server)
        assert await texts() == {None}
        server.pages["/s.xml"] = urlset(pages("a", 2), lastmod="2025-12-28")
        await scan_server(server)
    assert await texts() == {"2025-12-28"}
