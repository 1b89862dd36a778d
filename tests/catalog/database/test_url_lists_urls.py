"""Pages of URLs: every entry once, in a fixed order, whatever the page size and the filter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog import url_lists as urls
from siteatlas.catalog.url_lists import (
    ListingState,
    UrlExtra,
    UrlFilter,
    UrlPage,
    list_domain_urls,
    list_sitemap_urls,
    search_urls,
)
from siteatlas.catalog.urls import url_hash
from siteatlas.catalog.views import MAX_BIGINT, MIN_BIGINT
from siteatlas.errors import CursorInvalid
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
async def test_removed_urls_are_shown_on_request(
    session: AsyncSession, state: ListingState, expected: list[str]
):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    await add_urls(session, sitemap.id, [(2, "https://example.com/here")])
    await add_urls(
        session, sitemap.id, [(1, "https://example.com/gone")], removed_at=datetime.now(UTC)
    )
    page = await list_domain_urls(session, domain.id, UrlFilter(state=state))
    assert [view.url for view in page.items] == expected


async def test_a_text_filter_ignores_case_and_takes_wildcards_literally(session: AsyncSession):
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain)
    listed = [(1, "https://example.com/Blog/100%25"), (2, "https://example.com/blogger")]
    await add_urls(session, sitemap.id, listed)
    page = await list_domain_urls(session, domain.id, UrlFilter("BLOG/100%"))
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
    seen: list[UrlPage] = []

    async def read(cursor: str | None) -> UrlPage:
        page = await list_domain_urls(
            session, domain.id, UrlFilter("hit"), limit=limit, cursor=cursor
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
        await list_domain_urls(session, domain.id, UrlFilter("a"), cursor=page.next_cursor)


DAY = datetime(2026, 3, 1, tzinfo=UTC)
FILTERED: dict[str, dict[str, Any]] = {
    "https://example.com/blog/a": {"lastmod": DAY, "extras": {"images": [{"loc": "x"}]}},
    "https://example.com/blog/b": {"lastmod": DAY - timedelta(days=1)},
    "https://example.com/Blog/c": {"first_seen_at": DAY, "extras": {"videos": [], "news": {}}},
    "https://example.com/shop": {"extras": {"alternates": []}},
}


async def site_to_filter(session: AsyncSession) -> Domain:
    """Four URLs that differ in what filters look at."""
    domain = await add_domain(session)
    sitemap = await add_sitemap(session, domain, url_count=4)
    for url, columns in FILTERED.items():
        await add_urls(session, sitemap.id, [(url_hash(url), url)], **columns)
    return domain


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (UrlFilter(prefix="https://example.com/blog/"), {"blog/a", "blog/b"}),
        (UrlFilter(prefix="https://example.com/_log"), set()),
        (UrlFilter(url="https://example.com/shop"), {"shop"}),
        (UrlFilter(url="https://example.com/sho"), set()),
        (UrlFilter(lastmod_from=DAY), {"blog/a"}),
        (UrlFilter(lastmod_to=DAY), {"blog/b"}),
        (UrlFilter(lastmod_from=DAY - timedelta(days=1), lastmod_to=DAY), {"blog/b"}),
        (UrlFilter(first_seen_to=DAY + timedelta(seconds=1)), {"Blog/c"}),
        (UrlFilter(first_seen_to=DAY), set()),
        (UrlFilter(has=frozenset({UrlExtra.IMAGES})), {"blog/a"}),
        (UrlFilter(has=frozenset({UrlExtra.VIDEO, UrlExtra.NEWS})), {"Blog/c"}),
        (UrlFilter(has=frozenset({UrlExtra.VIDEO, UrlExtra.IMAGES})), set()),
        (UrlFilter(has=frozenset({UrlExtra.ALTERNATES})), {"shop"}),
    ],
)
async def test_a_filter_shows_exactly_the_urls_that_it_describes(
    session: AsyncSession, wanted: UrlFilter, expected: set[str]
):
    domain = await site_to_filter(session)
    page = await list_domain_urls(session, domain.id, wanted)
    assert {view.url.removeprefix("https://example.com/") for view in page.items} == expected
    assert page.next_cursor is None


async def test_a_sitemap_is_chosen_by_its_id_or_by_its_url(session: AsyncSession):
    domain = await add_domain(session)
    wanted, other = await add_sitemap(session, domain, "a"), await add_sitemap(session, domain, "b")
    await add_urls(session, wanted.id, [(1, "https://example.com/a")])
    await add_urls(session, other.id, [(1, "https://example.com/b")])
    for name in (str(wanted.id), wanted.url):
        page = await list_domain_urls(session, domain.id, UrlFilter(sitemap=name))
        assert [view.url for view in page.items] == ["https://example.com/a"]


async def test_one_url_is_found_in_every_document_page_by_page(session: AsyncSession):
    domain = await add_domain(session)
    url = "https://example.com/everywhere"
    for n in range(5):
        sitemap = await add_sitemap(session, domain, f"{n}.xml")
        await add_urls(session, sitemap.id, [(url_hash(url), url), (n, f"{url}/{n}")])
    wanted = UrlFilter(url=url)
    pages = await every_page(
        lambda cursor: list_domain_urls(session, domain.id, wanted, limit=2, cursor=cursor)
    )
    found = [view for page in pages for view in page]
    assert {view.url for view in found} == {url}
    assert len({view.sitemap_id for view in found}) == len(found) == 5


async def test_one_url_is_found_behind_many_documents_that_do_not_list_it(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(urls, "FIRST_STEP_OF_SEARCH", 2)
    monkeypatch.setattr(urls, "MAX_EXAMINED", 4)
    domain = await add_domain(session)
    ids = [(await add_sitemap(session, domain, f"{n}.xml")).id for n in range(11)]
    url = "https://example.com/rare"
    await add_urls(session, max(ids), [(url_hash(url), url)])
    pages = await every_page(
        lambda cursor: search_urls(session, UrlFilter(url=url), limit=10, cursor=cursor)
    )
    assert [len(page) for page in pages] == [0, 0, 1]


async def test_a_search_covers_all_sites_but_deleted_ones(session: AsyncSession):
    names = ("a.example", "b.example", "deleted.example")
    for name in names:
        deleted = datetime.now(UTC) if name.startswith("deleted") else None
        domain = await add_domain(session, name, deleted_at=deleted)
        sitemap = await add_sitemap(session, domain)
        await add_urls(session, sitemap.id, [(1, f"https://{name}/x"), (2, f"https://{name}/y")])
    page = await search_urls(session, UrlFilter("/x"))
    assert {(view.domain, view.url) for view in page.items} == {
        ("a.example", "https://a.example/x"),
        ("b.example", "https://b.example/x"),
    }


async def test_the_total_comes_from_counters_and_only_without_a_filter(session: AsyncSession):
    domain = await add_domain(session, url_count=70)
    sitemap = await add_sitemap(session, domain, url_count=40)
    await add_urls(
        session, sitemap.id, [(1, "https://example.com/a"), (2, "https://example.com/b")]
    )
    first = await list_domain_urls(session, domain.id, limit=1)
    later = await list_domain_urls(session, domain.id, limit=1, cursor=first.next_cursor)
    of_sitemap = await list_domain_urls(session, domain.id, UrlFilter(sitemap=sitemap.url))
    filtered = await list_domain_urls(session, domain.id, UrlFilter("a"))
    assert (first.total, later.total, of_sitemap.total, filtered.total) == (70, None, 40, None)
    assert (await list_sitemap_urls(session, sitemap.id)).total == 40
