"""Sections and months of a site: counted while it is read, summed over its documents."""

from __future__ import annotations

import pytest

from siteatlas.catalog import sections
from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.sections import MonthView, SectionsView, SectionView, domain_sections
from siteatlas.storage.models import Sitemap
from tests.fixtures.changing_site import ChangingSite, Fault
from tests.fixtures.database import transaction
from tests.fixtures.passing_time import let_minutes_pass
from tests.fixtures.pipeline import rows_of, scan_server
from tests.fixtures.records import add_domain, add_sitemap

pytestmark = pytest.mark.usefixtures("database")

LATER = 61


async def sections_of(site: str, limit: int = 50) -> SectionsView:
    async with transaction() as session:
        domain = await find_domain_view(session, site)
        return await domain_sections(session, domain.id, limit=limit)


async def counted(site: ChangingSite) -> dict[str, int]:
    return {one.section: one.url_count for one in (await sections_of(site.host_port)).sections}


def add_documents(site: ChangingSite) -> None:
    site.add("/index.xml", children=["/a.xml", "/b.xml"])
    site.add("/a.xml", ["/blog/1", "/blog/2", "/about"])
    site.add("/b.xml", ["/blog/3", "/shop/1"]).put("/shop/2", date="2026-10-31")


async def test_a_scan_counts_sections_and_months():
    async with ChangingSite() as site:
        add_documents(site)
        await scan_server(site)
        found = await sections_of(site.host_port)
    assert found.sections == [
        SectionView("/blog/", 3),
        SectionView("/shop/", 2),
        SectionView("/", 1),
    ]
    assert found.months == [MonthView("2026-10", 1), MonthView("2026-11", 5)]
    assert (found.url_count, found.sitemap_count, found.complete) == (6, 2, True)
    assert (found.other_url_count, found.other_month_url_count, found.undated_url_count) == (
        0,
        0,
        0,
    )


async def test_unchanged_documents_keep_their_counts_and_changed_ones_get_new_ones():
    async with ChangingSite() as site:
        add_documents(site)
        await scan_server(site)
        site["/b.xml"].drop("/blog/3")
        site["/b.xml"].put("/news/1")
        await scan_server(site)
        assert await counted(site) == {"/blog/": 2, "/shop/": 2, "/": 1, "/news/": 1}


async def test_a_cut_or_failed_read_leaves_the_counts_of_the_last_complete_one():
    async with ChangingSite() as site:
        add_documents(site)
        await scan_server(site)
        site["/a.xml"].put_first("/news/1")
        site["/a.xml"].fault = Fault.CUT
        site["/b.xml"].fault = Fault.SERVER_ERROR
        await scan_server(site)
        assert await counted(site) == {"/blog/": 3, "/shop/": 2, "/": 1}


async def test_a_document_that_was_never_read_to_its_end_counts_what_it_showed():
    async with ChangingSite() as site:
        add_documents(site)
        site["/a.xml"].fault = Fault.CUT
        site["/a.xml"].cut_after = 1
        await scan_server(site)
        assert await counted(site) == {"/blog/": 2, "/shop/": 2}


async def test_documents_that_are_gone_leave_the_sum():
    async with ChangingSite() as site:
        add_documents(site)
        await scan_server(site)
        site["/index.xml"].children = ["/a.xml"]
        del site.documents["/b.xml"]
        await scan_server(site)
        assert (await counted(site))["/shop/"] == 2
        await let_minutes_pass(LATER)
        await scan_server(site)
        assert await counted(site) == {"/blog/": 2, "/": 1}
    assert [row.url_breakdown for row in await rows_of(Sitemap) if row.type == "index"] == [{}]


async def test_what_is_not_shown_is_counted_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sections, "MAX_MONTHS", 1)
    counts = {
        "sections": {"/a/": 5, "/b/": 3, "/c/": 1},
        "other": 10,
        "months": {"2026-01": 4, "2026-02": 9},
        "other_months": 1,
        "undated": 5,
    }
    async with transaction() as session:
        domain = await add_domain(session)
        await add_sitemap(session, domain, url_breakdown=counts)
        await add_sitemap(session, domain, "never-read.xml")
    found = await sections_of("example.com", limit=2)
    assert found.sections == [SectionView("/a/", 5), SectionView("/b/", 3)]
    assert (found.url_count, found.other_url_count) == (19, 11)
    assert found.months == [MonthView("2026-02", 9)]
    assert (found.other_month_url_count, found.undated_url_count) == (5, 5)
    assert found.sitemap_count == 1


async def test_a_site_with_more_documents_than_are_summed_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sections, "MAX_DOCUMENTS", 2)
    sections._totals.cache_clear()
    sections._summed.cache_clear()
    counts = {"sections": {"/a/": 1}, "other": 0, "months": {}, "other_months": 0, "undated": 1}
    async with transaction() as session:
        domain = await add_domain(session)
        for number in range(3):
            await add_sitemap(session, domain, f"{number}.xml", url_breakdown=counts)
    found = await sections_of("example.com")
    sections._totals.cache_clear()
    sections._summed.cache_clear()
    assert (found.complete, found.sitemap_count, found.sections[0].url_count) == (False, 2, 2)
