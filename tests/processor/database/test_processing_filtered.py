"""A scan of selected children of an index: reports these children and nothing about others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from siteatlas.queue.completion import release
from siteatlas.scanner.options import ChildFilter
from siteatlas.storage.models import (
    Candidate,
    Domain,
    FeedEvent,
    Job,
    Scan,
    Sitemap,
    SitemapUrl,
)
from siteatlas.storage.session import get_background_session
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.database import transaction
from tests.fixtures.passing_time import let_minutes_pass
from tests.fixtures.pipeline import rows_of, scan_server, settings_for, submit_server, work
from tests.fixtures.queue import job_of, take_one

pytestmark = pytest.mark.usefixtures("database")

BLOG = ChildFilter(("*/blog*",))
NOT_BLOG = ChildFilter((), ("*/blog*",))
A, B, C = ("/1", "/2", "/3"), ("/4", "/5"), ("/6",)


@pytest.fixture
async def site() -> AsyncIterator[ChangingSite]:
    """An index of two sitemaps, and one sitemap beside it."""
    async with ChangingSite(robots=["/index.xml", "/top.xml"]) as server:
        server.add("/index.xml", children=["/blog.xml", "/shop.xml"])
        server.add("/blog.xml", A)
        server.add("/shop.xml", B)
        server.add("/top.xml", C)
        yield server


def result_of(job: Job) -> dict[str, Any]:
    return job.result_data or {}


def filter_of(job: Job) -> Any:
    return (job.job_metadata or {}).get("child_filter")


async def listed() -> set[str]:
    return {row.url.rsplit("/", 1)[1] for row in await rows_of(SitemapUrl) if not row.removed_at}


async def last_scan() -> Scan:
    return max(await rows_of(Scan), key=lambda scan: scan.id)


async def test_only_chosen_children_are_read_and_the_job_counts_the_others(site) -> None:
    job = await scan_server(site, child_filter=BLOG)
    assert "/shop.xml" not in site.paths
    assert await listed() == {"1", "2", "3", "6"}
    assert job.status == "completed"
    assert result_of(job)["skipped_sitemaps"] == {"by_address": 1, "by_date": 0}
    assert result_of(job)["reasons"] == ["sitemaps_filtered"]
    scan = await last_scan()
    assert (scan.state, scan.scope, scan.partial) == ("published", "filtered", True)
    (skipped,) = [row for row in await rows_of(Candidate) if row.verdict == "skipped"]
    assert (skipped.url, skipped.reason) == (f"{site.base}/shop.xml", "filtered_address")
    (domain,) = await rows_of(Domain)
    assert domain.baseline_scan_id is None


async def test_a_filtered_scan_of_a_known_site_removes_nothing_that_it_did_not_read(site) -> None:
    await scan_server(site)
    site["/index.xml"].children = ["/blog.xml", "/new.xml"]
    site["/shop.xml"].drop("/4")
    site["/blog.xml"].put("/7")
    await scan_server(site, child_filter=BLOG)
    assert await listed() == {"1", "2", "3", "4", "5", "6", "7"}
    assert (await last_scan()).change_counts == {"added": 1}
    assert all(row.vanished_at is None for row in await rows_of(Sitemap))
    await let_minutes_pass(61)
    await scan_server(site, child_filter=BLOG)
    assert await listed() == {"1", "2", "3", "4", "5", "6", "7"}
    (domain,) = await rows_of(Domain)
    assert (domain.url_count, domain.removals_held_since) == (7, None)


async def test_a_removal_inside_a_read_document_is_held_until_the_others_are_read(site) -> None:
    await scan_server(site)
    site["/blog.xml"].drop("/1")
    await scan_server(site, child_filter=BLOG)
    assert "1" in await listed()
    held = [row.data for row in await rows_of(FeedEvent) if row.kind == "removals_held"]
    assert [data["count"] for data in held] == [1]
    await scan_server(site)
    assert await listed() == {"2", "3", "4", "5", "6"}


async def test_a_full_scan_after_a_filtered_one_reads_what_that_left_out(site) -> None:
    await scan_server(site, child_filter=BLOG)
    job = await scan_server(site)
    assert await listed() == {"1", "2", "3", "4", "5", "6"}
    assert (result_of(job)["reasons"], (await last_scan()).scope) == ([], "full")
    assert "skipped_sitemaps" not in result_of(job)
    # The index is complete again, so that a filter applies to what is stored of it.
    site.requests.clear()
    await scan_server(site, child_filter=NOT_BLOG)
    assert site.paths == ["/robots.txt", "/index.xml", "/top.xml", "/shop.xml"]
    site.requests.clear()
    await scan_server(site)
    assert "/blog.xml" in site.paths


async def test_children_are_chosen_by_the_date_that_an_index_lists(site) -> None:
    site.pages["/index.xml"] = (
        "<sitemapindex><sitemap><loc>{base}/blog.xml</loc><lastmod>2026-01-01</lastmod></sitemap>"
        "<sitemap><loc>{base}/shop.xml</loc><lastmod>2026-03-01</lastmod></sitemap></sitemapindex>"
    )
    since = ChildFilter.of(since=datetime(2026, 2, 1, tzinfo=UTC))
    job = await scan_server(site, child_filter=since)
    assert result_of(job)["skipped_sitemaps"] == {"by_address": 0, "by_date": 1}
    assert await listed() == {"4", "5", "6"}


async def test_a_pending_job_with_a_filter_drops_it_when_the_whole_site_is_submitted(site) -> None:
    first = await submit_server(site, child_filter=BLOG)
    same = await submit_server(site, child_filter=BLOG)
    assert (same.id, filter_of(await job_of(first.id))) == (
        first.id,
        BLOG.as_dict(),
    )
    joined = await submit_server(site)
    assert (joined.id, joined.deduplicated) == (first.id, True)
    await work(settings_for(site))
    assert await listed() == {"1", "2", "3", "4", "5", "6"}
    assert (await last_scan()).scope == "full"


async def test_a_whole_scan_satisfies_a_submission_with_a_filter(site) -> None:
    first = await submit_server(site)
    joined = await submit_server(site, child_filter=BLOG)
    assert joined.id == first.id
    await work(settings_for(site))
    assert (await last_scan()).scope == "full"


@pytest.mark.parametrize("other", [None, NOT_BLOG])
async def test_a_running_job_with_a_filter_goes_on_with_the_whole_site(site, other) -> None:
    site.hold("/blog.xml")
    first = await submit_server(site, child_filter=BLOG)
    working = asyncio.create_task(work(settings_for(site)))
    await site.reached.wait()
    joined = await submit_server(site, child_filter=other)
    assert joined.id == first.id
    site.release()
    await working
    job = await job_of(first.id)
    assert (job.status, job.attempt, result_of(job)["reasons"]) == ("completed", 1, [])
    assert await listed() == {"1", "2", "3", "4", "5", "6"}
    (scan,) = await rows_of(Scan)
    assert (scan.scope, scan.partial) == ("full", False)


async def test_a_released_job_whose_filter_was_dropped_reads_its_indexes_again(site) -> None:
    """The first attempt has read the index; what it left out is not on its frontier."""
    site.hold("/blog.xml")
    await submit_server(site, child_filter=BLOG)
    working = asyncio.create_task(work(settings_for(site)))
    await site.reached.wait()
    await asyncio.sleep(0.1)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    site.release()
    await submit_server(site)
    await work(settings_for(site))
    assert await listed() == {"1", "2", "3", "4", "5", "6"}


async def test_a_filtered_scan_leaves_the_time_of_the_next_scan_as_it_is(site) -> None:
    await submit_server(site, watch=True, interval_hours=24)
    await work(settings_for(site))
    await let_minutes_pass(60)
    (before,) = [row.next_scan_at for row in await rows_of(Domain)]
    await submit_server(site, child_filter=BLOG)
    (after,) = [row.next_scan_at for row in await rows_of(Domain)]
    assert after == before


async def test_a_claim_knows_the_filter_of_its_job(site) -> None:
    await submit_server(site, child_filter=BLOG)
    claim = await take_one()
    assert (claim.child_filter, claim.scope, claim.is_narrow) == (BLOG, "filtered", True)
    async with transaction() as session:
        assert await release(session, claim) == "pending"
    async with get_background_session() as session, session.begin():
        job = (await session.scalars(select(Job))).one()
        assert filter_of(job) == BLOG.as_dict()
