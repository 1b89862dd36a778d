"""Counts by section and month: what a section is, and that whole columns are counted right."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

import pytest

from siteatlas.catalog.url_copy import NO_DATE, date_numbers
from siteatlas.processor import entries as url_breakdown
from siteatlas.processor.entries import UrlBreakdown, count_months, count_sections, section_of

SITE = "https://example.com"
HOSTS = (SITE, "http://example.com", "https://www.example.com")
PATHS = (
    "",
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/a/b/c",
    "//a/b",
    "/?q=/x/y",
    "/a?q=x/y",
    "/b/?q",
    "/b#/c/d",
)


@pytest.mark.parametrize(
    ("path", "section"),
    [
        ("", "/"),
        ("/", "/"),
        ("/about", "/"),
        ("/a-post/", "/"),
        ("/blog/a-post", "/blog/"),
        ("/blog/2026/a-post/", "/blog/"),
        ("/blog/?page=2", "/blog/"),
        ("/search?path=/a/b", "/"),
        ("/page#/a/b", "/"),
        ("//double/slash", "/"),
        ("/münchen/rathaus", "/münchen/"),
        (f"/{'x' * 98}/y", f"/{'x' * 98}/"),
        (f"/{'x' * 99}/y", ""),
    ],
)
def test_a_section_is_the_first_segment_if_anything_follows(path: str, section: str):
    assert section_of(SITE + path) == section
    assert count_sections([SITE + path, f"{SITE}/z/z"]) == Counter([section, "/z/"])


@pytest.mark.parametrize("hosts", [HOSTS[:1], HOSTS])
def test_a_column_is_counted_as_its_urls_are_one_by_one(hosts: tuple[str, ...]):
    chance = random.Random(46)
    urls = [chance.choice(hosts) + chance.choice(PATHS) * chance.randrange(3) for _ in range(2_000)]
    assert count_sections(urls) == Counter(map(section_of, urls))


def test_dates_are_counted_by_their_month_in_utc():
    east = timezone(timedelta(hours=2))
    moments = [
        datetime(1999, 12, 31, 23, 59, tzinfo=UTC),
        datetime(2000, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2024, 3, 1, 1, 30, tzinfo=east),
        datetime(2024, 3, 1, 2, 0, tzinfo=east),
        datetime(9999, 12, 31, tzinfo=UTC),
        None,
    ]
    months, undated = count_months(date_numbers(moments))
    assert months == {"1999-12": 1, "2000-01": 1, "2024-02": 2, "2024-03": 1, "9999-12": 1}
    assert undated == 1


def test_a_repeated_entry_is_counted_once():
    breakdown = UrlBreakdown()
    urls = [f"{SITE}/a/1", f"{SITE}/a/1", f"{SITE}/b/1", f"{SITE}/b/1"]
    dates = [*date_numbers([datetime(2026, 11, 1, tzinfo=UTC)] * 2), NO_DATE, NO_DATE]
    breakdown.add(urls, dates, repeated=[1, 3])
    assert breakdown.stored() == {
        "sections": {"/a/": 1, "/b/": 1},
        "other": 0,
        "months": {"2026-11": 1},
        "other_months": 0,
        "undated": 1,
    }


def test_a_document_without_entries_has_no_counts():
    breakdown = UrlBreakdown()
    breakdown.add([], [])
    assert breakdown.stored() == {}


def test_of_very_many_sections_the_sizes_are_estimated_and_no_url_is_lost(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(url_breakdown, "MANY_SECTIONS", 50)
    monkeypatch.setattr(url_breakdown, "MAX_NAMES", 300)
    chance = random.Random(1)
    breakdown = UrlBreakdown()
    for number in range(200):
        urls = [f"{SITE}/large/{number}-{n}" for n in range(60)]
        urls += [f"{SITE}/{number}-{n}/x" for n in range(35)]
        urls += [f"{SITE}/{'x' * 200}/{number}-{n}" for n in range(5)]
        breakdown.add(chance.sample(urls, 100), [NO_DATE] * 100)
    stored = breakdown.stored()
    assert 10_800 < stored["sections"]["/large/"] < 13_200
    assert len(stored["sections"]) <= 200
    assert sum(stored["sections"].values()) + stored["other"] == 20_000
