"""Documents that vanish, are gone and come back; new ones, and those that are read silently."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from siteatlas.catalog.removals import mark_vanished
from siteatlas.errors import Blocked, ServerError, SiteatlasError, Timeout
from siteatlas.storage.models import Domain, Sitemap
from tests.fixtures.database import transaction
from tests.fixtures.ended_scans import page, site_with_baseline
from tests.fixtures.passing_time import let_minutes_pass
from tests.fixtures.pipeline import rows_of

pytestmark = pytest.mark.usefixtures("database")

A = [f"/a{number:02d}" for number in range(30)]
B = [f"/b{number:02d}" for number in range(30)]


async def domain() -> Domain:
    (row,) = await rows_of(Domain)
    return row


async def sitemap(path: str) -> Sitemap:
    return next(row for row in await rows_of(Sitemap) if row.url == page(path))


async def test_a_document_that_nothing_names_is_asked_once_and_gone_when_confirmed() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="absent")
    await scan.publish()
    assert scan.asked == [page("/b.xml")]
    assert await site.event_lines(scan) == ["removals_held 30"]
    await let_minutes_pass(61)
    later = await site.scan(b="absent")
    await later.publish()
    assert await site.event_lines(later) == sorted(
        [*(f"removed {path} /b.xml (confirmed)" for path in B), "sitemap_gone /b.xml"]
    )
    row = await domain()
    assert (row.url_count, row.distinct_url_count, row.sitemap_count) == (30, 30, 1)
    gone = await sitemap("/b.xml")
    assert (gone.gone_at is not None, gone.content_hash, gone.url_count) == (True, None, 0)


async def test_an_attempt_does_not_confirm_what_an_earlier_one_at_the_same_scan_found() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="absent")
    scan.rules = replace(scan.rules, confirm_after=timedelta())
    async with transaction() as session:
        await mark_vanished(session, scan.id, [site.ids["/b.xml"]])
    await scan.publish()
    assert await site.event_lines(scan) == ["removals_held 30"]


@pytest.mark.parametrize("fault", [Blocked(), ServerError(), Timeout()])
async def test_a_fault_of_an_unnamed_document_starts_no_clock(fault: SiteatlasError) -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="absent")
    scan.answers[page("/b.xml")] = fault
    await scan.publish()
    assert await site.event_lines(scan) == []
    assert (await sitemap("/b.xml")).vanished_at is None


async def test_a_document_that_is_named_and_not_found_vanishes_without_being_asked_again() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="404")
    await scan.publish()
    assert scan.asked == []
    assert await site.event_lines(scan) == ["removals_held 30"]
    await let_minutes_pass(61)
    later = await site.scan(b="404")
    await later.publish()
    assert "sitemap_gone /b.xml" in await site.event_lines(later)


async def test_a_child_of_an_unread_index_has_not_vanished() -> None:
    site = await site_with_baseline(i=[], a=A, b=B)
    await site.link("/i.xml", "/b.xml")
    scan = await site.scan(i="unread", b="absent")
    await scan.publish()
    assert (scan.asked, await site.event_lines(scan)) == ([], [])


async def test_the_children_of_an_index_that_vanished_are_asked_too() -> None:
    site = await site_with_baseline(i=[], a=A, b=B)
    await site.link("/i.xml", "/b.xml")
    scan = await site.scan(i="404", b="absent")
    await scan.publish()
    assert scan.asked == [page("/b.xml")]
    assert await site.event_lines(scan) == ["removals_held 30"]


async def test_a_vanished_document_that_is_read_again_is_as_before() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="404")
    await scan.publish()
    later = await site.scan(b="unchanged")
    await later.publish()
    assert await site.event_lines(later) == []
    assert (await sitemap("/b.xml")).vanished_at is None
    assert (await domain()).removals_held_since is None


async def test_a_gone_document_that_is_read_again_is_added() -> None:
    site = await site_with_baseline(a=A, b=["/b"])
    scan = await site.scan(b="404")
    await scan.publish()
    await let_minutes_pass(61)
    gone = await site.scan(b="404")
    await gone.publish()
    later = await site.scan()
    await site.put(later, "/b.xml", "/b", kind="back")
    await later.publish()
    assert await site.event_lines(later) == ["back /b /b.xml", "sitemap_added /b.xml"]
    assert (await sitemap("/b.xml")).gone_at is None


async def test_a_document_that_redirects_to_another_one_vanishes() -> None:
    site = await site_with_baseline(a=A, b=["/b"])
    scan = await site.scan(b="absent")
    scan.answers[page("/b.xml")] = page("/a.xml")
    await scan.publish()
    assert (await sitemap("/b.xml")).vanished_at is not None


async def test_a_new_document_is_reported_with_its_urls() -> None:
    site = await site_with_baseline(a=A)
    scan = await site.scan()
    await site.add(scan, "/c.xml")
    await site.put(scan, "/c.xml", "/c1")
    await scan.publish()
    assert await site.event_lines(scan) == ["added /c1 /c.xml", "sitemap_added /c.xml"]
    later = await site.scan()
    await later.publish()
    assert await site.event_lines(later) == []


async def test_a_document_that_was_read_silently_has_a_baseline_of_its_own() -> None:
    site = await site_with_baseline(a=A)
    scan = await site.scan()
    await site.add(scan, "/c.xml", "/c1", "/c2", baseline_scan_id=scan.id)
    await scan.publish()
    assert await site.event_lines(scan) == ["baseline /c.xml"]
    assert (await domain()).distinct_url_count == 32
    later = await site.scan()
    await later.publish()
    assert await site.event_lines(later) == []
