"""Scans that may hold little of their open documents store the same as others."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog import urls
from siteatlas.catalog.write_batch import WriteBatch, flush_batch
from siteatlas.processor import entries as entry_memory
from siteatlas.processor import processing
from siteatlas.processor import steps as batch_writer
from siteatlas.processor.entries import EntryMemoryBudget
from siteatlas.processor.recorder import CHILDREN_PER_CHUNK, FLUSH_DOCUMENTS_WHEN_SPENT
from siteatlas.storage.models import Sitemap, SitemapUrl
from tests.fixtures.pipeline import index, pages, rows_of, scan_server, urlset
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")
REPEATED = 7


def site(lastmod: str, count: int) -> dict[str, str]:
    listed = pages("a", count)
    return {
        "/robots.txt": "Sitemap: {base}/index.xml\n",
        "/index.xml": index(["{base}/a.xml", "{base}/b.xml"]),
        "/a.xml": urlset([*listed, *listed[:REPEATED]], lastmod),
        "/b.xml": urlset(pages("b", 1_500), "2026-01-01"),
    }


@pytest.mark.parametrize("most", [0, 10**9])
async def test_what_is_stored_does_not_depend_on_the_memory(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    budgets: list[EntryMemoryBudget] = []

    def made() -> EntryMemoryBudget:
        budgets.append(EntryMemoryBudget(max_document_bytes=most))
        return budgets[-1]

    monkeypatch.setattr(processing, "EntryMemoryBudget", made)
    monkeypatch.setattr(entry_memory, "MIN_ENTRIES", 400)
    monkeypatch.setattr(urls, "FINGERPRINTS_PER_QUERY", 300)
    async with SiteServer(site("2026-01-01", 1_200)) as server:
        first = await scan_server(server)
        server.pages.update(site("2026-02-02", 1_300))
        again = await scan_server(server)
    assert first.result_data is not None
    assert again.result_data is not None
    assert (first.result_data["url_count"], again.result_data["url_count"]) == (2_700, 2_800)
    names = {row.id: row.url.rsplit("/", 1)[-1] for row in await rows_of(Sitemap)}
    stored = [(names[row.sitemap_id], row.lastmod) for row in await rows_of(SitemapUrl)]
    changed = [name for name, moment in stored if moment is not None and moment.month == 2]
    assert (len(stored), len(changed), set(changed)) == (2_800, 1_300, {"a.xml"})
    assert [budget.documents.held for budget in budgets] == [0, 0]
    assert [budget.held for budget in budgets] == [0, 0]


async def test_listed_documents_are_written_sooner_when_the_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []
    budget = EntryMemoryBudget(max_bytes=1)

    async def counted(session: AsyncSession, batch: WriteBatch, *, scan_id: int) -> None:
        written.append(batch.document_rows)
        await flush_batch(session, batch, scan_id=scan_id)

    monkeypatch.setattr(processing, "EntryMemoryBudget", lambda: budget)
    monkeypatch.setattr(batch_writer, "flush_batch", counted)
    names = [f"{{base}}/{number}.xml" for number in range(900)]
    site = {"/robots.txt": "Sitemap: {base}/index.xml\n", "/index.xml": index(names)}
    async with SiteServer(site) as server:
        await scan_server(server)
    assert len(await rows_of(Sitemap)) == len(names) + 1
    assert max(written) < FLUSH_DOCUMENTS_WHEN_SPENT + 2 * CHILDREN_PER_CHUNK
    assert budget.held == 0
