"""Which children of an index are read: chosen by address and by date."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from siteatlas.errors import InputError
from siteatlas.scanner.events import DocumentClosed, SitemapsSkipped, SitemapType
from siteatlas.scanner.options import MAX_PATTERN_CHARS, MAX_PATTERNS, ChildFilter, ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode
from tests.fixtures.documents import urlset_of
from tests.fixtures.scans import record_scan
from tests.fixtures.site_server import SiteServer
from tests.scanner.conftest import MakeAnalyzer

BLOG = "https://a.example/blog-1.xml"
SHOP = "https://a.example/shop-1.xml"
OLD, NEW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("include", "exclude", "url", "is_read"),
    [
        (["*/blog-*"], [], BLOG, True),
        (["*/blog-*"], [], SHOP, False),
        (["*/blog-*", "*shop*"], [], SHOP, True),
        ([], ["*shop*"], SHOP, False),
        ([], ["*shop*"], BLOG, True),
        (["*"], ["*-1.xml"], BLOG, False),
        (["blog"], [], BLOG, False),
        (["*/blog-?.xml"], [], BLOG, True),
        (["*/[bs]*-1.xml"], [], SHOP, True),
    ],
)
def test_a_child_is_read_if_its_address_matches(include, exclude, url, is_read):
    wanted = ChildFilter.of(include, exclude)
    assert wanted is not None
    assert wanted.refusal(url, None) is (None if is_read else ProblemCode.FILTERED_ADDRESS)


def test_a_child_with_an_older_date_is_not_read_and_one_without_a_date_is():
    wanted = ChildFilter.of(since=NEW)
    assert wanted is not None
    assert wanted.refusal(BLOG, OLD) is ProblemCode.FILTERED_DATE
    assert wanted.refusal(BLOG, NEW) is None
    assert wanted.refusal(BLOG, None) is None


def test_a_time_without_a_zone_is_in_utc():
    wanted = ChildFilter.of(since=datetime(2026, 2, 1))  # noqa: DTZ001 that is what is tested
    assert wanted is not None
    assert wanted.since == NEW


def test_a_filter_survives_being_stored_and_nothing_is_no_filter():
    wanted = ChildFilter.of(["b", "a"], ["c"], NEW)
    assert wanted is not None
    stored = ChildFilter.stored(wanted.as_dict())
    assert stored is not None
    assert stored.as_dict() == ChildFilter.of(["a", "b"], ["c"], NEW).as_dict()  # type: ignore[union-attr]
    assert (ChildFilter.of(), ChildFilter.of([], ()), ChildFilter.stored(None)) == (None,) * 3


@pytest.mark.parametrize(
    "patterns", [["*"] * (MAX_PATTERNS + 1), [""], ["x" * (MAX_PATTERN_CHARS + 1)]]
)
def test_patterns_are_limited_in_number_and_length(patterns):
    with pytest.raises(InputError, match="pattern"):
        ChildFilter.of(patterns)


@pytest.mark.parametrize("pattern", ["*a" * 99 + "*b", "*" + "a" * 197 + "b*"])
def test_hostile_patterns_take_no_more_than_linear_time(pattern):
    hostile = [pattern] * MAX_PATTERNS
    wanted = ChildFilter.of(hostile)
    assert wanted is not None
    wanted.refusal("a", None)
    began = time.process_time()
    assert wanted.refusal("a" * 8_192, None) is ProblemCode.FILTERED_ADDRESS
    assert time.process_time() - began < 0.5


async def test_children_that_are_left_out_are_counted_and_not_requested(
    site: SiteServer, make_analyzer: MakeAnalyzer
):
    entry = "<sitemap><loc>{base}%s</loc>%s</sitemap>"
    listed = [
        entry % ("/blog-1.xml", "<lastmod>2026-03-01</lastmod>"),
        entry % ("/blog-2.xml", "<lastmod>2025-03-01</lastmod>"),
        entry % ("/blog-3.xml", ""),
        entry % ("/shop-1.xml", "<lastmod>2026-03-01</lastmod>"),
    ]
    site.pages |= {
        "/robots.txt": "Sitemap: {base}/index.xml\n",
        "/index.xml": f"<sitemapindex>{''.join(listed)}</sitemapindex>",
        "/blog-1.xml": urlset_of(["https://a.example/1"]),
        "/blog-3.xml": urlset_of(["https://a.example/3"]),
    }
    options = ScanOptions(child_filter=ChildFilter.of(["*/blog-*"], since=NEW))
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert sorted(site.paths[2:]) == ["/blog-1.xml", "/blog-3.xml"]
    assert sorted(record.urls) == ["https://a.example/1", "https://a.example/3"]
    assert record.all(SitemapsSkipped) == [SitemapsSkipped(by_address=1, by_date=1)]
    assert record.verdicts["/shop-1.xml"] == "skipped filtered_address"
    assert record.verdicts["/blog-2.xml"] == "skipped filtered_date"
    hashes = {event.type: event.content_hash for event in record.all(DocumentClosed)}
    assert hashes[SitemapType.INDEX] is None
    assert hashes[SitemapType.STANDARD] is not None
