"""Rules for what is stored of a site: what is met, and what nearly is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from siteatlas.findings.history import (
    PastScan,
    SitemapChanges,
    StoredSite,
    StoredSitemap,
    judge_stored,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OLD = datetime(2026, 1, 1, tzinfo=UTC)


def sitemap(number: int = 1, **values: Any) -> StoredSitemap:
    usual: dict[str, Any] = {
        "id": UUID(int=number),
        "url": f"https://example.com/{number}.xml",
        "requested_url": None,
        "method": "robots_txt",
        "type": "urlset",
        "etag": None,
        "lastmod": None,
        "is_window": False,
        "url_count": 10,
        "vanished_at": None,
        "gone_at": None,
        "state": "complete",
        "http_status": 200,
    }
    return StoredSitemap(**usual | values)


def codes(*sitemaps: StoredSitemap, **given: Any) -> list[str]:
    site = StoredSite(now=NOW, started_at=NOW, sitemaps=sitemaps, **given)
    return [finding.code for _, finding in judge_stored(site)]


def changes(**values: Any) -> dict[UUID, SitemapChanges]:
    usual: dict[str, Any] = {
        "total": 1,
        "added": 0,
        "backwards": 0,
        "example": None,
        "seldom": 0,
        "not_before": NOW - timedelta(hours=1),
    }
    return {UUID(int=1): SitemapChanges(**usual | values)}


def test_an_ordinary_site_has_nothing():
    assert codes(sitemap(), robots="User-agent: *\nAllow: /\n", scans=counts(100, 100)) == []


@pytest.mark.parametrize(
    ("found", "values"),
    [
        (["sitemap-redirected"], {"requested_url": "https://example.com/old.xml"}),
        ([], {"requested_url": "https://example.com/1.xml"}),
        (["sitemap-orphan"], {"method": "common_path"}),
        ([], {"method": "common_path", "state": "unread"}),
        (["sitemap-not-in-robots"], {"method": "html_link"}),
        (["sitemap-vanished"], {"vanished_at": NOW - timedelta(days=29)}),
        ([], {"vanished_at": NOW - timedelta(days=31)}),
        (
            ["robots-names-dead-sitemap"],
            {"state": "unread", "error_code": "http_not_found"},
        ),
    ],
)
def test_a_sitemap_is_judged_by_how_it_was_found(found: list[str], values: dict[str, Any]):
    assert codes(sitemap(**values)) == found


@pytest.mark.parametrize(
    ("found", "values", "changed"),
    [
        (["lastmod-backwards"], {}, {"backwards": 1}),
        (["changefreq-contradicts-history"], {}, {"seldom": 5}),
        ([], {}, {"seldom": 4}),
        (["window-overrun"], {"is_window": True}, {"added": 10}),
        ([], {"is_window": True}, {"added": 9}),
        ([], {"is_window": True}, {"added": 10, "not_before": None}),
        ([], {"is_window": False}, {"added": 10}),
    ],
)
def test_a_sitemap_is_judged_by_what_changed_in_it(
    found: list[str], values: dict[str, Any], changed: dict[str, Any]
):
    assert codes(sitemap(**values), changes=changes(**changed)) == found


def test_an_index_is_judged_by_its_children():
    index = sitemap(9, type="index")
    parents = {UUID(int=1): [UUID(int=9)]}
    dead = sitemap(state="unread", error_code="server_error", method="sitemap_index")
    assert codes(index, dead, parents=parents) == ["index-child-dead"]
    refused = dead._replace(error_code="robots_disallowed")
    assert codes(index, refused, parents=parents) == []
    nested = sitemap(type="index", method="sitemap_index")
    assert codes(index, nested, parents=parents) == ["index-in-index"]


@pytest.mark.parametrize(
    ("found", "hours"), [(["index-lastmod-lags"], 26), ([], 22)], ids=["earlier", "same day"]
)
def test_a_date_of_the_index_lags_if_it_is_older_than_the_last_read(found: list[str], hours: int):
    read = NOW - timedelta(hours=1)
    child = sitemap(lastmod=read - timedelta(hours=hours), method="sitemap_index")
    parents = {UUID(int=1): [UUID(int=9)]}
    given = {"parents": parents, "changes": changes(not_before=read)}
    assert codes(sitemap(9, type="index"), child, **given) == found


@pytest.mark.parametrize(("found", "old"), [(["index-lastmod-always-now"], 0), ([], 1)])
def test_an_index_dates_all_by_its_generation_if_what_did_not_change_is_new(
    found: list[str], old: int
):
    children = [
        sitemap(n, state="unchanged", method="sitemap_index", lastmod=OLD if n <= old else NOW)
        for n in range(1, 7)
    ]
    parents = {one.id: [UUID(int=9)] for one in children}
    assert codes(sitemap(9, type="index"), *children, parents=parents) == found


def counts(*numbers: int) -> Sequence[PastScan]:
    """Newest first, an hour apart."""
    return [PastScan(number, NOW - timedelta(hours=n)) for n, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("found", "numbers"),
    [
        (["count-collapsed"], (49, 100)),
        (["count-collapsed"], (49, 49, 100)),
        ([], (50, 100)),
        ([], (60, 49, 100)),
        ([], (9, 19)),
        ([], (49, 70, 100)),
        ([], (100,)),
    ],
)
def test_a_site_collapses_if_one_scan_lost_more_than_half(
    found: list[str], numbers: tuple[int, ...]
):
    assert codes(scans=counts(*numbers)) == found


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (["sitemap-blocked-by-robots"], "User-agent: *\nDisallow: /1.xml\n"),
        ([], "User-agent: Other\nDisallow: /1.xml\n"),
        (["ai-user-blocked"], "User-agent: ChatGPT-User\nDisallow: /\n"),
        ([], "User-agent: ChatGPT-User\nDisallow: /private\n"),
        (["archive-blocked"], "User-agent: CCBot\nDisallow: /\n"),
        (["ai-search-blocked"], "User-agent: OAI-SearchBot\nDisallow: /\n"),
        (["robots-sitemap-not-absolute"], "Sitemap: /1.xml\n"),
    ],
)
def test_robots_txt_is_judged_for_sitemaps_and_for_agents(found: list[str], text: str):
    assert codes(sitemap(), robots=text, robots_origin="https://example.com") == found


def test_what_the_publication_knows_is_said():
    given = {"removals_held": 7, "robots_failed": True}
    assert codes(**given) == ["robots-unreachable", "mass-removal-held"]
    assert codes(sitemap(), flapping={UUID(int=1): ["https://example.com/a"]}) == ["url-flapping"]
    resent = {"resent": frozenset({UUID(int=1)})}
    assert codes(sitemap(etag='"x"'), **resent) == ["sitemap-validators-unstable"]
    assert codes(sitemap(), **resent) == []
