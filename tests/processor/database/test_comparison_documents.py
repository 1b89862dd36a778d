"""What a changed document lists is compared with what is stored of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from siteatlas.processor.entries import MemoryBudget
from siteatlas.storage.models import Job, Sitemap, SitemapUrl
from tests.fixtures.pipeline import index, pages, rows_of, scan_server, urlset
from tests.fixtures.reported import kinds_of_last_scan, scan_to_baseline
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")

MANY = 200
PAGES = pages("a", MANY)


def shop() -> SiteServer:
    return SiteServer({"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(PAGES)})


def listing(pages: Sequence[str], later: Sequence[str] = ()) -> str:
    """A document of these pages, of which the `later` ones have another date."""
    text = urlset(pages)
    for page in later:
        text = text.replace(f"{page}</loc><lastmod>2026-11-01", f"{page}</loc><lastmod>2026-11-09")
    return text


async def counts(job: Job) -> tuple[int, int]:
    """What a scan reports, and what its document has."""
    assert job.result_data is not None
    (document,) = await rows_of(Sitemap)
    return job.result_data["url_count"], document.url_count


@pytest.mark.parametrize("spent", [False, True])
async def test_new_changed_and_removed_entries_are_reported_and_no_others(
    monkeypatch: pytest.MonkeyPatch, spent: bool
) -> None:
    monkeypatch.setattr(MemoryBudget, "spent", property(lambda _budget: spent))
    async with shop() as server:
        await scan_to_baseline(server)
        new = [f"{{base}}/a/new-{number}" for number in range(3)]
        listed = [PAGES[0], *new, *PAGES[1:50], *PAGES[51:]]
        server.pages["/a.xml"] = listing(listed, later=[PAGES[80]])
        job = await scan_server(server)
    assert await kinds_of_last_scan() == {
        "page-80": "changed",
        "page-50": "removed",
        **{f"new-{number}": "added" for number in range(3)},
    }
    assert await counts(job) == (MANY + 2, MANY + 2)


async def test_a_changed_entry_that_returns_to_its_old_date_is_changed_again() -> None:
    async with shop() as server:
        await scan_to_baseline(server)
        for text in (listing(PAGES, [PAGES[3]]), listing(PAGES)):
            server.pages["/a.xml"] = text
            await scan_server(server)
            assert await kinds_of_last_scan() == {"page-3": "changed"}


@pytest.mark.parametrize("text", [index(["{base}/b.xml"]), "<html></html>", "junk"])
async def test_a_document_that_became_something_else_loses_nothing_else(text: str) -> None:
    async with shop() as server:
        await scan_to_baseline(server)
        server.pages["/a.xml"], server.pages["/b.xml"] = text, urlset(["{base}/b"])
        await scan_server(server)
        server.pages["/a.xml"] = listing(PAGES, [PAGES[3]])
        job = await scan_server(server)
    assert job.status == "completed"
    listed = [row for row in await rows_of(SitemapUrl) if row.missing_scan_id is None]
    assert len([row for row in listed if "/a/" in row.url]) == MANY
