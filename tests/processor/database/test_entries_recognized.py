"""Entries that have not changed are recognized by their digest, and nothing else is different.

To see which entries were read, the stored dates are falsified: a read puts them right, and an entry
that is recognized keeps its date.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update

from siteatlas.catalog.urls import load_entries
from siteatlas.errors import DatabaseUnavailable
from siteatlas.processor import documents as known_documents
from siteatlas.processor.entries import MemoryBudget
from siteatlas.storage.models import Job, Sitemap, SitemapUrl
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import index, pages, rows_of, scan_server, urlset
from tests.fixtures.reported import kinds_of_last_scan, scan_to_baseline
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")

# More than the last few kilobytes of a document, which are always read.
MANY = 200
FALSE = datetime(2020, 1, 1, tzinfo=UTC)
PAGES = pages("a", MANY)


def shop() -> SiteServer:
    return SiteServer({"/robots.txt": "Sitemap: {base}/a.xml\n", "/a.xml": urlset(PAGES)})


def listing(pages: Sequence[str], later: Sequence[str] = ()) -> str:
    """A document of these pages, of which the `later` ones have another date."""
    text = urlset(pages)
    for page in later:
        text = text.replace(f"{page}</loc><lastmod>2026-11-01", f"{page}</loc><lastmod>2026-11-09")
    return text


async def change(page: str = "", **values: Any) -> None:
    """Set values of one stored page, or of all."""
    async with get_background_session() as session, session.begin():
        rows = update(SitemapUrl).where(SitemapUrl.url.endswith(page.rpartition("/")[2]))
        await session.execute(rows.values(**values))


async def pages_read() -> set[str]:
    """The pages whose falsified date was put right, without those at the end of the document."""
    rows = [row for row in await rows_of(SitemapUrl) if row.lastmod != FALSE]
    names = {row.url.rpartition("/")[2] for row in rows}
    return names - {page.rpartition("/")[2] for page in PAGES[MANY // 2 :]}


async def counts(job: Job) -> tuple[int, int]:
    """What a scan reports, and what its document has."""
    assert job.result_data is not None
    (document,) = await rows_of(Sitemap)
    return job.result_data["url_count"], document.url_count


async def test_only_what_changed_is_read_and_all_of_it_is_reported() -> None:
    async with shop() as server:
        await scan_to_baseline(server)
        await change(lastmod=FALSE)
        new = [f"{{base}}/a/new-{number}" for number in range(3)]
        listed = [PAGES[0], *new, *PAGES[1:50], *PAGES[51:]]
        server.pages["/a.xml"] = listing(listed, later=[PAGES[80]])
        job = await scan_server(server)
    kinds = await kinds_of_last_scan()
    assert await pages_read() == {"page-80", "new-0", "new-1", "new-2"}
    assert kinds["page-80"] == "changed"
    assert [kinds[f"new-{number}"] for number in range(3)] == ["added"] * 3
    assert kinds["page-50"] == "removed"
    assert await counts(job) == (MANY + 2, MANY + 2)


async def test_a_changed_entry_is_recognized_by_its_new_text_in_the_next_scan() -> None:
    async with shop() as server:
        await scan_to_baseline(server)
        for later in ([PAGES[3]], [PAGES[3], PAGES[4]]):
            server.pages["/a.xml"] = listing(PAGES, later)
            await scan_server(server)
            assert await kinds_of_last_scan() == {later[-1].rpartition("/")[2]: "changed"}
        await change(lastmod=FALSE)
        server.pages["/a.xml"] = listing(PAGES, [PAGES[3], PAGES[4], PAGES[5]])
        await scan_server(server)
    read = await pages_read()
    # The database may have moved single rows to where they are not expected.
    assert "page-5" in read
    assert len(read) < MANY // 20


async def test_a_changed_entry_that_returns_to_its_old_text_is_read() -> None:
    async with shop() as server:
        await scan_to_baseline(server)
        for text in (listing(PAGES, [PAGES[3]]), listing(PAGES)):
            server.pages["/a.xml"] = text
            await scan_server(server)
            assert await kinds_of_last_scan() == {"page-3": "changed"}


async def test_an_entry_that_was_missing_is_read_when_it_is_back() -> None:
    async with shop() as server:
        await scan_to_baseline(server)
        server.pages["/a.xml"] = listing(PAGES[1:])
        await scan_server(server)
        server.pages["/a.xml"] = listing(PAGES)
        job = await scan_server(server)
    assert await kinds_of_last_scan() == {"page-0": "back"}
    assert await counts(job) == (MANY, MANY)


async def test_entries_stored_without_a_digest_are_read() -> None:
    async with shop() as server:
        await scan_to_baseline(server)
        await change(lastmod=FALSE, entry_digest=None)
        server.pages["/a.xml"] = listing(PAGES, [PAGES[3]])
        await scan_server(server)
    assert set(await kinds_of_last_scan()) == {page.rpartition("/")[2] for page in PAGES}


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


async def test_all_entries_are_read_if_the_memory_for_them_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryBudget, "spent", property(lambda _budget: True))
    async with shop() as server:
        await scan_to_baseline(server)
        await change(lastmod=FALSE)
        server.pages["/a.xml"] = listing(PAGES, [PAGES[3]])
        await scan_server(server)
    assert set(await kinds_of_last_scan()) == {page.rpartition("/")[2] for page in PAGES}


async def test_a_fault_of_the_database_before_the_document_is_opened_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = iter([DatabaseUnavailable()])

    async def fail_once(*arguments: Any, **options: Any) -> Any:
        for fault in faults:
            raise fault
        return await load_entries(*arguments, **options)

    async with shop() as server:
        await scan_to_baseline(server)
        monkeypatch.setattr(known_documents, "load_entries", fail_once)
        server.pages["/a.xml"] = listing(PAGES, [PAGES[3]])
        job = await scan_server(server)
    assert job.status == "completed"
    assert await kinds_of_last_scan() == {"page-3": "changed"}
