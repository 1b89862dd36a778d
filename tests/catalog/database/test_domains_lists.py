"""Lists of sites in each order, read page by page, and the tags that sites have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, update

from siteatlas.catalog.domains import ListedDomain, list_domains, most_used_tags
from siteatlas.errors import CursorInvalid
from siteatlas.storage.models import Domain, StoredFinding
from siteatlas.storage.session import AsyncSession
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.findings import found, judge
from tests.fixtures.records import add_domain, add_sitemap, every_page

pytestmark = pytest.mark.usefixtures("database")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SITES = 9
KEYS = ("name", "urls", "scanned", "changes", "findings")
SORTS = [f"{sign}{key}" for key in KEYS for sign in ("", "-")]


async def add_sites(session: AsyncSession) -> None:
    """Sites of which several have the same number of everything, and some have nothing."""
    for number in range(SITES):
        third = number % 3
        domain = await add_domain(
            session,
            f"{(number * 7) % SITES}.example",
            url_count=10 * third,
            last_scan_at=NOON + timedelta(hours=third) if third else None,
        )
        if not third:
            continue
        await add_published_scan(session, domain, change_counts={"added": 1_000})
        scan = await add_published_scan(
            session, domain, change_counts={"added": third, "removed": 1}
        )
        domain.last_published_seq = scan.published_seq
        sitemap = await add_sitemap(session, domain)
        codes = ("url-invalid", "lastmod-uniform", "priority-ignored")[: third + 1]
        await judge(session, scan, sitemap.id, *map(found, codes))


def value_of(site: ListedDomain, sort: str) -> Any:
    long_ago = datetime.min.replace(tzinfo=UTC)
    return {
        "name": site.domain,
        "urls": site.url_count,
        "scanned": site.last_scan_at or long_ago,
        "changes": site.change_count,
        "findings": site.finding_count,
    }[sort.removeprefix("-")]


@pytest.mark.parametrize("sort", SORTS)
async def test_pages_in_each_order_have_every_site_once(sort: str):
    async with transaction() as session:
        await add_sites(session)
        pages = await every_page(
            lambda cursor: list_domains(session, sort=sort, limit=2, cursor=cursor)
        )
    sites = [site for page in pages for site in page]
    assert len({site.domain for site in sites}) == len(sites) == SITES
    by_name = sorted(sites, key=lambda site: site.domain)
    expected = sorted(
        by_name,
        key=lambda site: value_of(site, sort),
        reverse=sort.startswith("-"),
    )
    assert [site.domain for site in sites] == [site.domain for site in expected]


async def test_a_site_counts_its_last_changes_and_its_open_errors_and_warnings():
    async with transaction() as session:
        await add_sites(session)
        await session.execute(
            update(StoredFinding)
            .where(StoredFinding.domain_id == Domain.id, Domain.domain == "7.example")
            .values(resolved_at=func.now())
        )
        sites = {site.domain: site for site in (await list_domains(session)).items}
    counts = {name: (site.change_count, site.finding_count) for name, site in sites.items()}
    assert counts["0.example"] == (0, 0)
    assert counts["7.example"] == (2, 0)
    assert counts["5.example"] == (3, 2)


async def test_a_cursor_of_another_order_is_refused():
    async with transaction() as session:
        await add_sites(session)
        page = await list_domains(session, sort="-urls", limit=2)
        with pytest.raises(CursorInvalid):
            await list_domains(session, sort="urls", limit=2, cursor=page.next_cursor)


async def test_tags_are_counted_the_most_used_first():
    async with transaction() as session:
        for name, tags in {"a": ["shop"], "b": ["news", "shop"], "c": []}.items():
            await add_domain(session, f"{name}.example", tags=tags)
        await add_domain(session, "#gone", tags=["gone"], deleted_at=NOON)
        read = partial(most_used_tags, session)
        assert await read() == {"shop": 2, "news": 1}
        assert await read(limit=1) == {"shop": 2}
