"""Judging URLs and reading the values of entries."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteatlas.scanner.reading.entries import (
    RawEntries,
    Tally,
    build_columns,
    fault_of_url,
    is_plain_url,
    read_date,
)


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example",
        "HTTP://A.EXAMPLE/x",
        "https://a.example/?q=a@b",
        "https://a.example:8443/ü/語?x=1#top",
        "https://münchen.example/",
        "https://a.example/with blank",
        "http://[2001:db8::1]/",
        "https://a.example/" + "x" * (8192 - 18),
    ],
)
def test_keeps(url):
    assert fault_of_url(url) is None


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "loc_missing"),
        ("https://a.example/" + "x" * 8192, "url_too_long"),
        ("https://a.example/a\tb", "control_char"),
        ("https://a.example/a\nb", "control_char"),
        ("https://a.example/\x85", "control_char"),
        ("https://a.example/\ufffd", "bad_unicode"),
        (f"https://a.example/{chr(0xD800)}", "bad_unicode"),
        ("https://user:pw@a.example/", "credentials"),
        ("ftp://a.example/", "bad_url"),
        ("mailto:a@b.example", "bad_url"),
        ("http:///path", "bad_url"),
        ("http://", "bad_url"),
        ("https://a b/", "bad_url"),
        ("/path", "relative_url"),
        ("www.a.example/path", "relative_url"),
        ("//a.example/path", "relative_url"),
        ("undefined/x", "relative_url"),
        ("{{site.url}}/x", "bad_url"),
        ("${base}/x", "bad_url"),
        ("%7B%7Bsite.url%7D%7D/x", "bad_url"),
        ("http//www.a.example/x", "bad_url"),
        ("#top", "bad_url"),
    ],
)
def test_skips_with_a_reason(url, fault):
    assert fault_of_url(url) == fault


@pytest.mark.parametrize(
    "url",
    [
        "http://.xn--abc/",
        "http://.xn--…/",
        "http://example.com&><'\"/",
        "http://a..b/",
        "http://-/",
        "https://https://example.com/a",
        "https://http/a",
        "http://[::1/",
        "http://:80/x",
        "http://%zz/",
        "http://a.example:99999/",
        "http://1.2.3.999/",
        f"http://{'a' * 64}.example/",
        f"http://{'a.' * 127}example/",
        f"http://{'a' * 5000}/",
    ],
)
def test_a_host_that_nobody_can_ask_makes_a_url_bad(url):
    assert fault_of_url(url) == "bad_url"
    for plain in (True, False):
        tally = Tally()
        raw = RawEntries(["https://a.example/", url, "https://b.example"], locs_are_plain=plain)
        assert build_columns(raw, tally).urls == ["https://a.example/", "https://b.example"]
        assert (tally.skipped, tally.problems) == (1, {"bad_url": 1})


@given(st.from_regex(r"https?://[!-~]{1,40}", fullmatch=True))
def test_a_plain_url_is_kept_if_its_host_is_valid(url):
    if is_plain_url(url):
        raw = RawEntries([url], locs_are_plain=True)
        kept = build_columns(raw, Tally()).urls
        assert kept == ([url] if fault_of_url(url) is None else [])
        assert fault_of_url(url) in (None, "bad_url")


@pytest.mark.parametrize(
    ("loc", "url"),
    [
        ("/a", "https://w.example/a"),
        ("b.html", "https://w.example/shop/b.html"),
        ("../ü x", "https://w.example/%C3%BC%20x"),
        ("?page=2", "https://w.example/shop/s.xml?page=2"),
        ("//b.example/c", "https://b.example/c"),
        ("w.example/page", "https://w.example/page"),
        ("www.W.example/page?a", "https://www.w.example/page?a"),
        ("w.example", "https://w.example/"),
        ("b.example/page", "https://w.example/shop/b.example/page"),
        ("w.example.html", "https://w.example/shop/w.example.html"),
    ],
)
def test_a_relative_url_is_resolved_against_the_document(loc, url):
    tally = Tally()
    raw = RawEntries(["https://w.example/1", loc], ["2026-01-01", "2026-01-02"])
    columns = build_columns(raw, tally, "https://w.example/shop/s.xml")
    assert columns.urls == ["https://w.example/1", url]
    assert [moment.day for moment in columns.lastmods if moment] == [1, 2]
    assert (tally.skipped, tally.problems) == (0, {"relative_url": 1})


@pytest.mark.parametrize(
    ("loc", "fault"),
    [
        ("//", "bad_url"),
        ("//a..b/", "bad_url"),
        ("//[::1/", "bad_url"),
        ("//me:secret@a.example/", "credentials"),
        ("/" + "ü" * 8000, "url_too_long"),
        ("mailto:a@b.example", "bad_url"),
    ],
)
def test_what_is_no_url_in_full_either_is_left_out(loc, fault):
    tally = Tally()
    assert build_columns(RawEntries([loc]), tally, "https://w.example/s.xml").urls == []
    assert (tally.skipped, tally.problems[fault]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-11", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-02", datetime(2026, 11, 2, tzinfo=UTC)),
        ("2026/11/2", datetime(2026, 11, 2, tzinfo=UTC)),
        ("20261102", datetime(2026, 11, 2, tzinfo=UTC)),
        ("2026-11-02T10:20Z", datetime(2026, 11, 2, 10, 20, tzinfo=UTC)),
        ("2026-11-02T10:20:30+02:00", datetime(2026, 11, 2, 8, 20, 30, tzinfo=UTC)),
        ("2026-11-02T10:20:30.5Z", datetime(2026, 11, 2, 10, 20, 30, 500000, tzinfo=UTC)),
        ("2026-11-02T10:20:30.123456789Z", datetime(2026, 11, 2, 10, 20, 30, 123456, tzinfo=UTC)),
        ("2026-11-02 10:20:30", datetime(2026, 11, 2, 10, 20, 30, tzinfo=UTC)),
        ("2026-11-02 10:20:30 +0100", datetime(2026, 11, 2, 9, 20, 30, tzinfo=UTC)),
        ("2026-11-02 10:20:30 UTC", datetime(2026, 11, 2, 10, 20, 30, tzinfo=UTC)),
        ("2024-01-01+02:00", datetime(2023, 12, 31, 22, tzinfo=UTC)),
        ("2024-01-01-05:30", datetime(2024, 1, 1, 5, 30, tzinfo=UTC)),
        ("2024-01-01Z", datetime(2024, 1, 1, tzinfo=UTC)),
        ("2024-01+02:00", datetime(2023, 12, 31, 22, tzinfo=UTC)),
        ("2026-1-2", datetime(2026, 1, 2, tzinfo=UTC)),
        ("Mon, 02 Nov 2026 10:20:30 GMT", datetime(2026, 11, 2, 10, 20, 30, tzinfo=UTC)),
        ("Mon, 02 Nov 2026 10:20:30 +0100", datetime(2026, 11, 2, 9, 20, 30, tzinfo=UTC)),
    ],
)
def test_reads_the_date(text, moment):
    assert read_date(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2026-13-01",
        "2026-02-30",
        "0000-01-01",
        "9999-99-99",
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59:59-12:00",
        "20240101+02:00",
        "2024-01-01+02:00:00",
        "1899-01-01",
        "2500-01-01",
        "{{ date }}",
        "0",
    ],
)
def test_gives_no_date_for(text):
    assert read_date(text) is None


@given(st.text(max_size=40))
def test_no_text_makes_the_date_reader_fail(text):
    moment = read_date(text)
    assert moment is None or moment.tzinfo is UTC


def test_values_that_cannot_be_read_are_none_and_counted():
    tally = Tally()
    raw = RawEntries(
        locs=["https://a.example/1", "https://a.example/2", "https://a.example/3"],
        lastmods=["2026-01-01", "soon", ""],
        changefreqs=["Daily", "sometimes", " "],
        priorities=["0.5", "7", ""],
    )
    columns = build_columns(raw, tally)
    assert columns.lastmods == [datetime(2026, 1, 1, tzinfo=UTC), None, None]
    assert columns.changefreqs == ["daily", None, None]
    assert columns.priorities == [0.5, None, None]
    assert tally.problems == {"lastmod_invalid": 1, "changefreq_invalid": 1, "priority_invalid": 1}
    assert tally.skipped == 0


def test_a_very_long_value_is_not_read():
    tally = Tally()
    columns = build_columns(RawEntries(["https://a.example/"], ["2" * 40_000]), tally)
    assert columns.lastmods == [None]
    assert tally.problems == {"lastmod_invalid": 1}


def test_skipped_entries_leave_no_gap_in_the_columns():
    tally = Tally()
    raw = RawEntries(
        locs=["https://a.example/1", "nonsense", " https://a.example/3\n"],
        lastmods=["2026-01-01", "2026-01-02", "2026-01-03"],
        extras=[None, {"x": 1}, {"y": 2}],
    )
    columns = build_columns(raw, tally)
    assert columns.urls == ["https://a.example/1", "https://a.example/3"]
    assert [moment.day for moment in columns.lastmods if moment] == [1, 3]
    assert columns.extras == [None, {"y": 2}]
    assert columns.priorities == [None, None]
    assert (tally.skipped, tally.problems) == (1, {"relative_url": 1})
