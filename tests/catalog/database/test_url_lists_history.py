"""The history of one URL: its entries and its published changes, newest first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.change_feed import ChangeView
from siteatlas.catalog.paging import Page
from siteatlas.catalog.url_lists import list_url_history
from siteatlas.catalog.urls import url_hash
from siteatlas.storage.models import Scan, Sitemap, UrlChange
from tests.fixtures.changes import add_published_scan
from tests.fixtures.records import (
    add_domain,
    add_job,
    add_scan,
    add_sitemap,
    add_urls,
    every_page,
)

URL = "https://example.com/a"


def add_change(session: AsyncSession, scan: Scan, sitemap: Sitemap, **columns: Any) -> None:
    """A change of the URL in one document."""
    values = {"kind": "changed", "url": URL, "url_hash": url_hash(URL)} | columns
    session.add(UrlChange(scan_id=scan.id, sitemap_id=sitemap.id, **values))


async def test_a_url_has_its_entries_and_its_changes_newest_first(session: AsyncSession):
    domain, elsewhere = await add_domain(session), await add_domain(session, "other.example")
    old, new = await add_sitemap(session, domain, "old"), await add_sitemap(session, domain, "new")
    foreign = await add_sitemap(session, elsewhere)
    removed_at = datetime(2026, 2, 1, tzinfo=UTC)
    await add_urls(session, old.id, [(url_hash(URL), URL)], removed_at=removed_at)
    await add_urls(session, new.id, [(url_hash(URL), URL), (5, "https://example.com/b")])
    first, second = [await add_published_scan(session, domain) for _ in range(2)]
    before, after = {"changefreq": "daily"}, {"changefreq": "weekly"}
    add_change(session, first, old, before=before, after=after)
    add_change(session, second, new, kind="moved", previous_sitemap_id=old.id, after=after)
    add_change(session, second, new, url="https://example.com/b", url_hash=5)
    add_change(session, await add_published_scan(session, elsewhere), foreign)
    unpublished = await add_scan(session, domain, await add_job(session, domain))
    add_change(session, unpublished, new)
    await session.flush()

    page = await list_url_history(session, domain.id, URL)
    moved, changed = page.items
    assert (moved.kind, moved.sitemap, moved.previous_sitemap) == ("moved", new.url, old.url)
    assert (changed.kind, changed.fields) == ("changed", ["changefreq"])
    assert (changed.before, changed.after, changed.scan_id) == (before, after, first.id)
    assert moved.seq > changed.seq
    assert {(entry.sitemap, entry.removed_at) for entry in page.entries} == {
        (old.url, removed_at),
        (new.url, None),
    }


async def test_a_long_history_has_pages(session: AsyncSession):
    domain = await add_domain(session)
    sitemaps = [await add_sitemap(session, domain, name) for name in "abc"]
    for _ in range(3):
        scan = await add_published_scan(session, domain)
        for sitemap in sitemaps:
            add_change(session, scan, sitemap)
    await session.flush()

    async def read(cursor: str | None) -> Page[ChangeView]:
        return await list_url_history(session, domain.id, URL, limit=2, cursor=cursor)

    found = [change.id for page in await every_page(read) for change in page]
    assert len(found) == len(set(found)) == 9


async def test_a_url_that_was_never_listed_has_no_history(session: AsyncSession):
    domain = await add_domain(session)
    page = await list_url_history(session, domain.id, URL)
    assert (page.items, page.entries, page.next_cursor) == ([], [], None)
