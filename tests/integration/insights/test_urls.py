"""Pages of URLs: every listing once, in a fixed order, whatever the page size and the filter."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import CursorInvalid
from siteatlas.insights import urls
from siteatlas.insights.pages import MAX_BIGINT, MIN_BIGINT, Page
from siteatlas.insights.urls import ListingState, UrlView, list_domain_urls, list_sitemap_urls
from siteatlas.storage.models import Domain
from tests.fixtures.records import add_domain, add_sitemap, add_urls, every_page

ROWS = 2500


async def site_with_many_urls(session: AsyncSession) -> Domain:
    """Seven documents, one of them empty, with 2,500 listings between them."""
    domain = await add_domain(session)
    sitemaps = [await add_sitemap(session, domain, f"{n}.xml") for n in range(7)]
    random = Random(5)
    for position, sitemap in enumerate(sitemaps[:6]):
        rows = [
            (random.randint(MIN_BIGINT, MAX_BIGINT), f"https://example.com/{number}")
            for number in range(position, ROWS, 6)
        ]
        await add_urls(session, sitemap.id, rows)
    return domain


@pytest.mark.parametrize("limit", [1000, 333, 100])
async def test_pages_neither_skip_nor_repeat(session: AsyncSession, limit: int):
    domain = await site_with_many_urls(session)
    pages = await every_page(
        lambda cursor: list_domain_urls(session, domain.id, limit=limit, cursor=cursor)
    )
    found = [view.url for page in pages for view in page]
    assert sorted(found) == sorted(f"https://example.com/{n}" for n in range(ROWS))
    assert all(len(page) == limit for page in pages[:-1])


async def test_the_order_is_sitemap_by_sitemap(session: AsyncSession):
    domain = await site_with_many_urls(session)
    page = await list_domain_urls(session, domain.id, limit=1000)
    assert [view.sitemap_id for view in page.items] == sorted(v.sitemap_id for v in page.items)


async def test_the_smallest_and_the_largest_hash_are_listed(session: AsyncSession):
    domain = await add_domain(session)
    for path in ("a", "b"):
        sitemap = await add_sitemap(session, domain, path)
        keys = (MIN_BIGINT, -1, 0, MAX_BIGINT)
        await add_urls(
            session, sitemap.id, [(key, f"https://example.com/{path}{key}") for key in keys]
        )
    pages = await every_page(
        lambda cursor: list_domain_urls(session, domain.id, limit=1, cursor=cursor)
    )
    found = [view.url for page in pages for view in page]
    assert len(found) == len(set(found)) == 8


async def test_a_site_without_urls_has_an_empty_page(session: AsyncSession):
    domain = await add_domain(session)
    page = await list_domain_urls(session, domain.id)
    assert (page.items, page.next_cursor, page.examined) == ([], None, 0)


async def test_a_view_shows_the_document_that_lists_the_url(session: AsyncSession):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    lastmod = datetime(2025, 1, 2, tzinfo=UTC)
    extras = {"images": ["https://example.com/a.png"]}
    await add_urls(
        session,
        sitemap.id,
        [(1, "https://example.com/a")],
        lastmod=lastmod,
        changefreq="daily",
        priority=0.5,
        extras=extras,
    )
    (view,) = (await list_domain_urls(session, domain.id)).items
    assert (view.sitemap, view.sitemap_id) == (sitemap.url, sitemap.id)
    assert (view.lastmod, view.changefreq, view.priority) == (lastmod, "daily", 0.5)
    assert (view.extras, view.removed_at) == (extras, None)


async def test_the_urls_of_one_document_leave_out_the_others(session: AsyncSession):
    domain = await add_domain(session)
    wanted, other = await add_sitemap(session, domain, "a"), await add_sitemap(session, domain, "b")
    await add_urls(session, wanted.id, [(1, "https://example.com/a")])
    await add_urls(session, other.id, [(1, "https://example.com/b")])
    page = await list_sitemap_urls(session, wanted.id)
    assert [view.url for view in page.items] == ["https://example.com/a"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ListingState.LISTED, ["https://example.com/here"]),
        (ListingState.REMOVED, ["https://example.com/gone"]),
        (ListingState.ALL, ["https://example.com/gone", "https://example.com/here"]),
    ],
)
async def test_removed_listings_are_shown_when_asked_for(
    session: AsyncSession, state: ListingState, expected: list[str]
):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    await add_urls(session, sitemap.id, [(2, "https://example.com/here")])
    await add_urls(
        session, sitemap.id, [(1, "https://example.com/gone")], removed_at=datetime.now(UTC)
    )
    page = await list_domain_urls(session, domain.id, state=state)
    assert [view.url for view in page.items] == expected


async def test_a_text_filter_ignores_case_and_takes_wildcards_literally(session: AsyncSession):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    listed = [(1, "https://example.com/Blog/100%25"), (2, "https://example.com/blogger")]
    await add_urls(session, sitemap.id, listed)
    page = await list_domain_urls(session, domain.id, contains="BLOG/100%")
    assert [view.url for view in page.items] == ["https://example.com/Blog/100%25"]


@pytest.mark.parametrize("limit", [2, 3, 100])
async def test_a_filter_examines_a_bounded_number_of_rows(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch, limit: int
):
    monkeypatch.setattr(urls, "MAX_EXAMINED", 10)
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    await add_urls(
        session,
        sitemap.id,
        [(n, f"https://example.com/{'hit' if n in {3, 9, 34} else 'miss'}/{n}") for n in range(40)],
    )
    seen: list[Page[UrlView]] = []

    async def read(cursor: str | None) -> Page[UrlView]:
        page = await list_domain_urls(
            session, domain.id, contains="hit", limit=limit, cursor=cursor
        )
        seen.append(page)
        return page

    pages = await every_page(read)
    found = [view.url.rsplit("/")[-1] for page in pages for view in page]
    assert found == ["3", "9", "34"]
    assert all(page.examined is not None and page.examined <= 10 for page in seen)
    assert sum(page.examined or 0 for page in seen) == 40


async def test_a_cursor_of_another_filter_is_refused(session: AsyncSession):
    domain = await site_with_many_urls(session)
    page = await list_domain_urls(session, domain.id, limit=1)
    with pytest.raises(CursorInvalid):
        await list_domain_urls(session, domain.id, contains="a", cursor=page.next_cursor)
