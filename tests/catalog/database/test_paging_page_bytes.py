"""Pages are bounded in bytes as well as in rows, and so is what is read for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog import paging as page_reading
from siteatlas.catalog.comparison import compare_scans
from siteatlas.catalog.domains import list_candidates
from siteatlas.catalog.paging import MAX_PAGE_BYTES, Page
from siteatlas.catalog.sitemaps import list_sitemaps
from siteatlas.catalog.url_lists import UrlFilter, list_domain_urls
from siteatlas.queue.views import list_jobs
from siteatlas.storage.models import Domain
from tests.fixtures.changes import add_changes, add_published_scan
from tests.fixtures.records import (
    add_candidate,
    add_domain,
    add_job,
    add_sitemap,
    add_urls,
    every_page,
)

ROWS = 300
LARGE = {"images": [{"loc": f"https://example.com/{n}.png?{'x' * 80}"} for n in range(600)]}
SLACK = 1.05

Read = Callable[[str | None], Awaitable[Page[Any]]]


async def site_with_large_listings(session: AsyncSession) -> Domain:
    """A document whose listings are about 66 KB each, 20 MB together."""
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    rows = [(n, f"https://example.com/{n}") for n in range(ROWS)]
    await add_urls(session, sitemap.id, rows, extras=LARGE)
    return domain


@pytest.mark.parametrize("contains", [None, "example"])
async def test_a_page_of_large_entries_ends_early_and_the_next_one_continues(
    session: AsyncSession, contains: str | None
):
    domain = await site_with_large_listings(session)
    pages = await every_page(
        lambda cursor: list_domain_urls(
            session, domain.id, UrlFilter(contains), limit=1000, cursor=cursor
        )
    )
    urls = [view.url for page in pages for view in page]
    assert sorted(urls) == sorted(f"https://example.com/{n}" for n in range(ROWS))
    sizes = [len(orjson.dumps(page, default=str)) for page in pages]
    assert len(pages) > 4
    assert max(sizes) <= MAX_PAGE_BYTES * SLACK
    assert min(sizes[:-1]) >= MAX_PAGE_BYTES * 0.9


async def test_a_comparison_of_large_entries_ends_early_and_the_next_page_continues(
    session: AsyncSession,
):
    domain = await add_domain(session, baseline_scan_id=1)
    sitemap = await add_sitemap(session, domain)
    scans = [(await add_published_scan(session, domain)) for _ in range(2)]
    await add_changes(session, scans[1], sitemap, range(ROWS), after={"extras": LARGE})
    pages = await every_page(
        lambda cursor: compare_scans(
            session, domain.id, (scans[0].id, scans[1].id), limit=1000, cursor=cursor
        )
    )
    urls = [entry.url for page in pages for entry in page]
    assert urls == [f"https://example.com/{n}" for n in range(ROWS)]
    sizes = [len(orjson.dumps(page, default=str)) for page in pages]
    assert len(pages) > 4
    assert max(sizes) <= MAX_PAGE_BYTES * SLACK
    assert min(sizes[:-1]) >= MAX_PAGE_BYTES * 0.9


async def test_what_does_not_fit_is_not_read_either(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    fetched: list[int] = []
    wanted = page_reading.PageCapacity.rows_to_fetch

    def noted(room: page_reading.PageCapacity) -> int:
        fetched.append(wanted(room))
        return fetched[-1]

    monkeypatch.setattr(page_reading.PageCapacity, "rows_to_fetch", noted)
    domain = await site_with_large_listings(session)
    page = await list_domain_urls(session, domain.id, limit=1000)
    assert len(page.items) <= sum(fetched) <= len(page.items) + 5


async def test_a_single_row_larger_than_a_page_is_still_shown(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(page_reading, "MAX_PAGE_BYTES", 1_000)
    domain = await site_with_large_listings(session)
    page = await list_domain_urls(session, domain.id, limit=1000)
    assert len(page.items) == 1
    assert page.next_cursor is not None


async def test_small_rows_are_read_in_two_steps(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    await add_urls(session, sitemap.id, [(n, f"https://example.com/{n}") for n in range(1200)])
    steps = 0
    wanted = page_reading.PageCapacity.rows_to_fetch

    def counted(room: page_reading.PageCapacity) -> int:
        nonlocal steps
        steps += 1
        return wanted(room)

    monkeypatch.setattr(page_reading.PageCapacity, "rows_to_fetch", counted)
    page = await list_domain_urls(session, domain.id, limit=1000)
    assert (len(page.items), steps) == (1000, 2)


async def test_other_lists_end_early_too(session: AsyncSession, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page_reading, "MAX_PAGE_BYTES", 40_000)
    domain = await add_domain(session)
    for n in range(30):
        path = f"{n}-{'x' * 2_000}"
        await add_sitemap(session, domain, path)
        await add_candidate(session, domain, path)
        await add_job(session, domain, result_data={"domain": "example.com", "note": "x" * 3_000})
    lists: list[Read] = [
        lambda cursor: list_sitemaps(session, domain.id, limit=1000, cursor=cursor),
        lambda cursor: list_candidates(session, domain.id, limit=1000, cursor=cursor),
        lambda cursor: list_jobs(session, limit=1000, cursor=cursor),
    ]
    for read in lists:
        pages = await every_page(read)
        assert sum(map(len, pages)) == 30
        assert max(map(len, pages)) <= 20
