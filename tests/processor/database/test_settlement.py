"""What the changes of a scan mean for the whole site, and what is proved to be removed."""

from __future__ import annotations

import pytest

from siteatlas.storage.models import Domain, FeedEvent, FeedHead, Scan, Sitemap, UrlChange
from tests.fixtures.ended_scans import EndedSite, page, site_with_baseline
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


async def test_the_first_complete_scan_is_the_baseline_of_each_document() -> None:
    site = EndedSite()
    first = await site.scan()
    await site.add(first, "/a.xml", *A)
    await site.add(first, "/b.xml", *B)
    await first.publish()
    assert await site.event_lines(first) == ["baseline /a.xml", "baseline /b.xml"]
    row = await domain()
    assert (row.baseline_scan_id, row.url_count, row.distinct_url_count) == (first.id, 60, 60)


async def test_a_first_scan_with_an_unread_document_is_no_baseline() -> None:
    site = EndedSite()
    first = await site.scan()
    await site.add(first, "/a.xml", *A)
    await site.add(first, "/b.xml")
    first.reasons = ["server_error"]
    await first.publish()
    assert await site.event_lines(first) == []
    second = await site.scan(b="unread")
    second.reasons = []
    await second.publish()
    assert (await site.event_lines(second), (await domain()).baseline_scan_id) == ([], None)


async def test_a_scan_without_changes_reports_nothing() -> None:
    site = await site_with_baseline(a=A)
    scan = await site.scan()
    await scan.publish()
    assert await site.event_lines(scan) == []
    newest = max(await rows_of(Scan), key=lambda row: row.id)
    assert (newest.published_seq, newest.change_counts, newest.scope) == (2, {}, "full")
    assert (await domain()).last_published_seq == 2


async def test_few_urls_that_a_complete_scan_misses_are_removed() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan()
    await site.miss(scan, "/a.xml", "/a00")
    await site.put(scan, "/b.xml", "/new")
    await scan.publish()
    assert await site.event_lines(scan) == ["added /new /b.xml", "removed /a00 /a.xml (complete)"]
    row = await domain()
    assert (row.url_count, row.distinct_url_count, row.missing_count) == (60, 60, 0)
    assert (await sitemap("/a.xml")).url_count == 29
    newest = max(await rows_of(Scan), key=lambda row: row.id)
    assert newest.change_counts == {"added": 1, "removed": 1}


async def test_a_removal_names_the_two_reads_between_which_the_url_vanished() -> None:
    site = await site_with_baseline(a=A)
    seen = (await sitemap("/a.xml")).last_complete_at
    scan = await site.scan()
    await site.miss(scan, "/a.xml", "/a00")
    missed = (await sitemap("/a.xml")).last_complete_at
    await scan.publish()
    (change,) = await rows_of(UrlChange)
    assert seen is not None
    assert missed is not None
    assert (change.not_before, change.not_after) == (seen, missed)
    assert (change.before, change.after) == ({}, None)


async def test_a_url_that_is_missing_here_and_new_there_has_moved() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan()
    await site.miss(scan, "/a.xml", "/a00")
    await site.put(scan, "/b.xml", "/a00")
    await scan.publish()
    assert await site.event_lines(scan) == ["moved /a00 /b.xml from /a.xml"]
    assert ("/a.xml", "/a00") not in await site.listed()
    assert ((await domain()).url_count, (await domain()).distinct_url_count) == (60, 60)


async def test_a_url_may_move_to_two_documents_and_is_reported_once_as_moved() -> None:
    site = await site_with_baseline(a=A, b=B, c=[])
    scan = await site.scan()
    await site.miss(scan, "/a.xml", "/a00")
    await site.put(scan, "/b.xml", "/a00")
    await site.put(scan, "/c.xml", "/a00")
    await scan.publish()
    first, second = sorted(["/b.xml", "/c.xml"], key=lambda path: site.ids[path])
    assert await site.event_lines(scan) == sorted(
        [f"moved /a00 {first} from /a.xml", f"duplicate_added /a00 {second}"]
    )


async def test_a_further_and_a_lost_sitemap_of_a_url_are_duplicates() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan()
    await site.put(scan, "/b.xml", "/a00")
    await scan.publish()
    assert await site.event_lines(scan) == ["duplicate_added /a00 /b.xml"]
    assert ((await domain()).url_count, (await domain()).distinct_url_count) == (61, 60)
    later = await site.scan()
    await site.miss(later, "/a.xml", "/a00")
    await later.publish()
    assert await site.event_lines(later) == ["duplicate_removed /a00 /a.xml (complete)"]
    assert ((await domain()).url_count, (await domain()).distinct_url_count) == (60, 60)


async def test_a_url_that_leaves_two_documents_at_once_is_removed_once() -> None:
    site = await site_with_baseline(a=[*A, "/x"], b=[*B, "/x"])
    scan = await site.scan()
    await site.miss(scan, "/a.xml", "/x")
    await site.miss(scan, "/b.xml", "/x")
    await scan.publish()
    lines = [line.split()[0] for line in await site.event_lines(scan)]
    assert lines == ["duplicate_removed", "removed"]
    assert ((await domain()).url_count, (await domain()).distinct_url_count) == (60, 60)


async def test_a_removed_url_that_is_listed_again_is_back_also_in_another_document() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan()
    await site.miss(scan, "/a.xml", "/a00", "/a01")
    await scan.publish()
    later = await site.scan()
    await site.put(later, "/a.xml", "/a00", kind="back")
    await site.put(later, "/b.xml", "/a01")
    await later.publish()
    assert await site.event_lines(later) == ["back /a00 /a.xml", "back /a01 /b.xml"]


async def test_a_page_that_left_a_window_for_an_archive_has_moved() -> None:
    site = await site_with_baseline(news=["/n1", "/n2"], archive=["/n2"])
    scan = await site.scan()
    await site.expire(scan, "/news.xml", "/n1", "/n2")
    await site.put(scan, "/archive.xml", "/n1")
    await scan.publish()
    assert await site.event_lines(scan) == [
        "duplicate_removed /n2 /news.xml",
        "moved /n1 /archive.xml from /news.xml",
    ]
    assert ((await domain()).url_count, (await domain()).distinct_url_count) == (2, 2)


async def test_what_leaves_a_window_and_is_nowhere_else_has_expired() -> None:
    site = await site_with_baseline(news=["/n1", "/n2"])
    scan = await site.scan()
    await site.expire(scan, "/news.xml", "/n1")
    await scan.publish()
    assert await site.event_lines(scan) == ["expired /n1 /news.xml"]


async def test_more_than_half_of_the_urls_are_held_until_a_later_read_misses_them_too() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan()
    await site.miss(scan, "/a.xml", *A[:16])
    await site.miss(scan, "/b.xml", *B[:15])
    await scan.publish()
    assert await site.event_lines(scan) == ["removals_held 31"]
    row = await domain()
    assert (row.missing_count, row.url_count) == (31, 60)
    assert row.removals_held_since is not None
    await let_minutes_pass(30)
    early = await site.scan()
    await early.publish()
    assert await site.event_lines(early) == []
    await let_minutes_pass(40)
    late = await site.scan()
    await late.publish()
    lines = await site.event_lines(late)
    assert len(lines) == 31
    assert {line.split()[-1] for line in lines} == {"(confirmed)"}
    row = await domain()
    assert (row.missing_count, row.removals_held_since, row.url_count) == (0, None, 29)


async def test_half_of_the_urls_are_removed_at_once() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan()
    await site.miss(scan, "/a.xml", *A[:15])
    await site.miss(scan, "/b.xml", *B[:15])
    await scan.publish()
    assert len(await site.event_lines(scan)) == 30


async def test_duplicates_do_not_count_for_the_half() -> None:
    site = await site_with_baseline(a=A, b=[*A, "/b"])
    scan = await site.scan()
    await site.miss(scan, "/a.xml", *A[:29])
    await scan.publish()
    lines = await site.event_lines(scan)
    assert len(lines) == 29
    assert {line.split()[0] for line in lines} == {"duplicate_removed"}


async def test_an_unread_document_holds_the_removals_of_others() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="unread")
    await site.miss(scan, "/a.xml", "/a00")
    await scan.publish()
    assert await site.event_lines(scan) == ["removals_held 1"]
    (event,) = [row for row in await rows_of(FeedEvent) if row.kind == "removals_held"]
    assert event.data["documents"] == [{"sitemap": page("/b.xml"), "reason": "unread"}]
    await let_minutes_pass(61)
    again = await site.scan(b="cut")
    await again.publish()
    assert await site.event_lines(again) == []
    last = await site.scan()
    await last.publish()
    assert await site.event_lines(last) == ["removed /a00 /a.xml (confirmed)"]


async def test_a_url_that_moves_into_an_unread_document_is_not_removed() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="unread")
    await site.miss(scan, "/a.xml", "/a00")
    await scan.publish()
    later = await site.scan()
    await site.put(later, "/b.xml", "/a00")
    await later.publish()
    assert await site.event_lines(later) == ["moved /a00 /b.xml from /a.xml"]
    assert (await domain()).removals_held_since is None


async def test_a_missing_url_that_is_seen_again_ends_the_hold_without_an_event() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="unread")
    await site.miss(scan, "/a.xml", "/a00")
    await scan.publish()
    later = await site.scan()
    await site.see_again("/a.xml", "/a00")
    await later.publish()
    assert await site.event_lines(later) == []
    row = await domain()
    assert (row.missing_count, row.removals_held_since) == (0, None)


async def test_a_hold_ends_after_a_week() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="unread")
    await site.miss(scan, "/a.xml", "/a00")
    await scan.publish()
    await let_minutes_pass(7 * 24 * 60)
    later = await site.scan(b="unread")
    await later.publish()
    assert await site.event_lines(later) == ["removed /a00 /a.xml (timeout)"]


async def test_an_empty_document_needs_a_second_look_however_few_urls_it_had() -> None:
    site = await site_with_baseline(a=A, b=["/b"])
    scan = await site.scan()
    await site.miss(scan, "/b.xml", "/b")
    await scan.publish()
    assert await site.event_lines(scan) == ["removals_held 1"]
    await let_minutes_pass(61)
    later = await site.scan(b="unchanged")
    await later.publish()
    assert await site.event_lines(later) == ["removed /b /b.xml (confirmed)"]


async def test_a_scan_that_met_a_limit_removes_nothing_by_itself() -> None:
    site = await site_with_baseline(a=A)
    scan = await site.scan()
    scan.reasons = ["url_limit"]
    await site.miss(scan, "/a.xml", "/a00")
    await scan.publish()
    assert await site.event_lines(scan) == ["removals_held 1"]
    newest = max(await rows_of(Scan), key=lambda row: row.id)
    assert newest.scope == "filtered"


async def test_another_origin_and_another_robots_txt_are_reported() -> None:
    site = await site_with_baseline(a=A)
    scan = await site.scan()
    scan.origin = "https://www.example.com"
    scan.robots = (scan.robots[0]._replace(text="Sitemap: /a.xml\nDisallow: /x\n"),)
    await scan.publish()
    assert await site.event_lines(scan) == ["origin_changed", "robots_changed"]
    (changed,) = [row for row in await rows_of(FeedEvent) if row.kind == "robots_changed"]
    assert "+Disallow: /x" in changed.data["diff"]
    later = await site.scan()
    later.origin, later.robots = scan.origin, scan.robots
    await later.publish()
    assert await site.event_lines(later) == []


async def test_numbers_of_the_feed_have_no_gap() -> None:
    site = await site_with_baseline(a=A)
    for _ in range(3):
        await (await site.scan()).publish()
    numbers = sorted(row.published_seq or 0 for row in await rows_of(Scan))
    (head,) = await rows_of(FeedHead)
    assert (numbers, head.seq) == ([1, 2, 3, 4], 4)
    assert head.retained_from == 0
