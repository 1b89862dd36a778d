"""The URLs of a site in each order, read page by page."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import delete, text
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog import url_lists
from siteatlas.catalog.change_feed import read_head
from siteatlas.catalog.paging import MAX_CURSOR_CHARS
from siteatlas.catalog.url_lists import ListingState, UrlFilter, UrlView, list_domain_urls
from siteatlas.catalog.urls import url_hash
from siteatlas.errors import CursorInvalid, TooManyToSort
from siteatlas.storage.models import Domain, SitemapUrl
from tests.fixtures.changes import add_published_scan
from tests.fixtures.records import add_domain, add_sitemap, add_urls, every_page
from tests.fixtures.timings import measured

DAY = datetime(2026, 3, 1, tzinfo=UTC)
SORTS = ["url", "-url", "lastmod", "-lastmod"]
# Upper case comes before lower case, and both before letters beyond ASCII.
PATHS = ("b", "a", "B", "a/z", "é", "c", "d")


async def site_with_ties(session: AsyncSession) -> Domain:
    """Three sitemaps with the same URLs, of which some have the same date and some have none."""
    domain = await add_domain(session)
    for number in range(3):
        sitemap = await add_sitemap(session, domain, f"{number}.xml")
        for place, path in enumerate(PATHS):
            url, day = f"https://example.com/{path}", place % 3
            lastmod = DAY - timedelta(days=1000 * day, microseconds=number) if day else None
            removed = DAY if path == "d" else None
            row = [(url_hash(url), url)]
            await add_urls(session, sitemap.id, row, lastmod=lastmod, removed_at=removed)
    return domain


def expected_order(views: list[UrlView], sort: str) -> list[UrlView]:
    """The order that is promised, made in another way."""
    is_reversed = sort.startswith("-")
    tied = sorted(views, key=lambda one: (one.url, one.sitemap_id))
    if sort.endswith("url"):
        return tied[::-1] if is_reversed else tied
    dated = [one for one in tied if one.lastmod]
    dated.sort(key=lambda one: one.lastmod or DAY, reverse=is_reversed)
    return dated + [one for one in tied if not one.lastmod]


async def sorted_urls(
    session: AsyncSession, domain: Domain, sort: str, limit: int, **chosen: Any
) -> list[UrlView]:
    """All URLs of a site in an order, read in pages."""
    read = partial(list_domain_urls, session, domain.id, sort=sort, limit=limit, **chosen)
    pages = await every_page(lambda cursor: read(cursor=cursor))
    assert all(len(page) == limit for page in pages[:-1])
    return [view for page in pages for view in page]


@pytest.mark.parametrize("state", ListingState)
@pytest.mark.parametrize("limit", [1, 4, 100])
@pytest.mark.parametrize("sort", SORTS)
async def test_pages_in_each_order_have_every_url_once(
    session: AsyncSession, sort: str, limit: int, state: ListingState
):
    domain = await site_with_ties(session)
    wanted = UrlFilter(state=state)
    views = (await list_domain_urls(session, domain.id, wanted)).items
    assert len(views) == {"listed": 18, "removed": 3, "all": 21}[state]
    found = await sorted_urls(session, domain, sort, limit, wanted=wanted)
    assert found == expected_order(views, sort)


@pytest.mark.parametrize("sort", SORTS)
async def test_a_filter_leaves_out_the_others_without_empty_pages(session: AsyncSession, sort: str):
    domain = await site_with_ties(session)
    sitemap = (await list_domain_urls(session, domain.id)).items[0].sitemap
    for wanted in (
        UrlFilter("/a"),
        UrlFilter(sitemap=sitemap),
        UrlFilter(url="https://example.com/b"),
        UrlFilter(lastmod_from=DAY - timedelta(days=1500)),
    ):
        views = (await list_domain_urls(session, domain.id, wanted)).items
        found = await sorted_urls(session, domain, sort, 2, wanted=wanted)
        assert found
        assert found == expected_order(views, sort)


@pytest.mark.parametrize("sort", SORTS)
async def test_the_past_is_sorted_too(session: AsyncSession, sort: str):
    domain = await site_with_ties(session)
    scan = await add_published_scan(session, domain)
    domain.baseline_scan_id = scan.id
    await session.flush()
    now = (await read_head(session)).seq
    views = (await list_domain_urls(session, domain.id, at=now)).items
    assert len(views) == 18
    assert await sorted_urls(session, domain, sort, 4, at=now) == expected_order(views, sort)


@pytest.mark.parametrize("sort", SORTS)
async def test_long_urls_that_begin_alike_are_told_apart_by_cursors(
    session: AsyncSession, sort: str
):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    urls = [
        f"https://example.com/{8_000 * start}{n}" for start in ("a", '"', "é") for n in range(5)
    ]
    await add_urls(session, sitemap.id, [(url_hash(url), url) for url in urls])
    found = await sorted_urls(session, domain, sort, 2)
    assert [one.url for one in found] == sorted(urls, reverse=sort == "-url")
    page = await list_domain_urls(session, domain.id, sort=sort, limit=12)
    assert len(page.next_cursor or "") < MAX_CURSOR_CHARS


@pytest.mark.parametrize("sort", SORTS)
async def test_a_page_goes_on_behind_a_url_that_is_deleted_meanwhile(
    session: AsyncSession, sort: str
):
    domain = await site_with_ties(session)
    whole = await sorted_urls(session, domain, sort, 100)
    page = await list_domain_urls(session, domain.id, sort=sort, limit=7)
    last = page.items[-1]
    of_last = SitemapUrl.sitemap_id == last.sitemap_id, SitemapUrl.url == last.url
    await session.execute(delete(SitemapUrl).where(*of_last))
    rest = await list_domain_urls(session, domain.id, sort=sort, cursor=page.next_cursor)
    assert rest.items == whole[7:]


async def test_a_cursor_of_another_order_is_refused(session: AsyncSession):
    domain = await site_with_ties(session)
    page = await list_domain_urls(session, domain.id, sort="url", limit=2)
    for other in ("-url", "lastmod", None):
        with pytest.raises(CursorInvalid):
            await list_domain_urls(session, domain.id, sort=other, cursor=page.next_cursor)


async def test_the_first_page_has_the_total_and_no_number_of_examined_rows(session: AsyncSession):
    domain = await site_with_ties(session)
    domain.url_count = 18
    await session.flush()
    page = await list_domain_urls(session, domain.id, sort="url", limit=2)
    assert (page.total, page.examined) == (18, None)
    assert page.as_of_seq is not None
    rest = await list_domain_urls(session, domain.id, sort="url", cursor=page.next_cursor)
    assert (rest.total, rest.as_of_seq) == (None, None)


async def test_a_site_with_too_many_listings_is_not_sorted(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    domain = await site_with_ties(session)
    monkeypatch.setattr(url_lists, "MAX_SORTED_URLS", 21)
    assert len((await list_domain_urls(session, domain.id, sort="url")).items) == 18
    monkeypatch.setattr(url_lists, "MAX_SORTED_URLS", 20)
    with pytest.raises(TooManyToSort):
        await list_domain_urls(session, domain.id, UrlFilter("/a"), sort="url")
    assert len((await list_domain_urls(session, domain.id)).items) == 18


@pytest.mark.slow
async def test_the_first_page_of_20_000_listings_comes_soon(session: AsyncSession):
    domain = await add_domain(session)
    for number in range(4):
        sitemap = await add_sitemap(session, domain, f"{number}.xml")
        await session.execute(
            text(
                "INSERT INTO sitemap_urls (sitemap_id, url_hash, url, fingerprint, lastmod) "
                "SELECT :sitemap, n, 'https://example.com/section/' || md5(n::text), 1, "
                "now() - n * interval '1 minute' FROM generate_series(1, 5000) n"
            ),
            {"sitemap": sitemap.id},
        )
    for sort in SORTS:
        started = time.perf_counter()
        page = await list_domain_urls(session, domain.id, sort=sort)
        measured(time.perf_counter() - started, 0.25)
        assert len(page.items) == 100
