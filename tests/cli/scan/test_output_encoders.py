"""URL entries as lines: quick, and exactly what was listed."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteatlas.cli.scan.output import csv_head, csv_lines, object_lines
from siteatlas.cli.terminal.output import url_lines
from siteatlas.scanner.events import EntryColumns
from siteatlas.scanner.reading.entries import listed_text

SITEMAP = "https://a.example/sitemap.xml"


def columns_of(urls: list[str], extras: list[dict[str, Any] | None] | None = None) -> EntryColumns:
    nothing = [None] * len(urls)
    return EntryColumns(urls, list(nothing), list(nothing), list(nothing), extras or list(nothing))


def entries(encoded: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in encoded.splitlines()]


def test_an_entry_has_the_fields_of_the_api():
    columns = EntryColumns(
        ["https://a.example/"],
        [datetime(2026, 1, 2, tzinfo=UTC)],
        ["daily"],
        [0.8],
        [None],
        ["2026-01-02"],
    )
    assert object_lines(SITEMAP, columns) == (
        b'{"url":"https://a.example/","lastmod":"2026-01-02T00:00:00Z","changefreq":"daily",'
        b'"priority":0.8,"sitemap":"https://a.example/sitemap.xml","extras":null,'
        b'"lastmod_text":"2026-01-02"}\n'
    )


def test_a_url_that_looks_like_the_seam_between_objects_stays_whole():
    urls = ['https://a.example/},{"url":1', "https://a.example/b"]
    assert [entry["url"] for entry in entries(object_lines(SITEMAP, columns_of(urls)))] == urls


def test_extras_that_hold_the_seam_between_objects_stay_whole():
    extras: list[dict[str, Any] | None] = [{"images": [{"url": "x"}, {"url": "y"}]}, None]
    lines = entries(object_lines(SITEMAP, columns_of(["https://a.example/", "b"], extras)))
    assert [entry["extras"] for entry in lines] == extras


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_every_list_of_urls_comes_back_from_its_json_lines(urls: list[str]):
    # Text may hold characters that end a line for `splitlines` but not in bytes.
    lines = object_lines(SITEMAP, columns_of(urls)).split(b"\n")[:-1]
    assert [orjson.loads(line)["url"] for line in lines] == urls


def test_urls_stand_one_a_line_as_they_were_listed():
    assert url_lines(["https://a.example/ü", "b"]) == "https://a.example/ü\nb\n".encode()
    assert url_lines([]) == b""


@pytest.mark.slow
@given(st.lists(st.text(), min_size=1, max_size=8))
def test_there_are_as_many_lines_as_urls_whatever_they_hold(urls: list[str]):
    encoded = url_lines(urls)
    assert encoded.count(b"\n") == len(urls)
    assert b"\x1b" not in encoded


MOMENTS = st.none() | st.datetimes(timezones=st.just(UTC))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["https://a.example/", "https://a.example/ü", 'https://a.example/"\\'])
        | TEXTS,
        MOMENTS,
        st.sampled_from([None, "daily", "weekly"]),
        st.sampled_from([None, 0.0, 0.5, 1.0]),
        st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
        st.sampled_from(["", "2026", "2026-01-02", "2026-01-02T10:00Z", "=1+1"]) | TEXTS,
    ),
    min_size=1,
    max_size=6,
)


def columns_of_rows(rows: list[tuple[Any, ...]]) -> EntryColumns:
    return EntryColumns(*(list(column) for column in zip(*rows, strict=True)))


@pytest.mark.slow
@given(ROWS)
def test_json_lines_hold_exactly_what_was_listed(rows: list[tuple[Any, ...]]):
    lines = object_lines(SITEMAP, columns_of_rows(rows)).split(b"\n")[:-1]
    fields = ("url", "lastmod", "changefreq", "priority", "extras", "lastmod_text")
    found = [tuple(orjson.loads(line)[name] for name in fields) for line in lines]
    expected = [
        (
            url,
            orjson.loads(orjson.dumps(moment, option=orjson.OPT_UTC_Z)),
            word,
            number,
            extras,
            listed_text(moment, listed),
        )
        for url, moment, word, number, extras, listed in rows
    ]
    assert found == expected


@pytest.mark.slow
@given(ROWS)
def test_csv_has_a_row_of_seven_cells_for_every_entry_and_no_formula(rows: list[tuple[Any, ...]]):
    encoded = csv_lines(SITEMAP, columns_of_rows(rows)).decode()
    read = list(csv.reader(io.StringIO(encoded, newline=""), strict=True))
    assert [len(cells) for cells in read] == [7] * len(rows)
    assert not any(cell.strip().startswith(("=", "+", "-", "@")) for row in read for cell in row)
    assert "\x1b" not in encoded


def test_csv_has_the_fields_of_the_json_lines():
    columns = EntryColumns(
        ["https://a.example/?a=1,2", "https://a.example/b"],
        [datetime(2026, 1, 2, tzinfo=UTC), None],
        ["daily", None],
        [0.8, None],
        [{"images": ["https://a.example/i.png"]}, None],
        ["2026-01-02", 'soon, "maybe"'],
    )
    rows = list(csv.DictReader(io.StringIO((csv_head() + csv_lines(SITEMAP, columns)).decode())))
    assert rows == [
        {
            "url": "https://a.example/?a=1,2",
            "lastmod": "2026-01-02T00:00:00Z",
            "changefreq": "daily",
            "priority": "0.8",
            "sitemap": SITEMAP,
            "extras": '{"images":["https://a.example/i.png"]}',
            "lastmod_text": "2026-01-02",
        },
        {
            "url": "https://a.example/b",
            "lastmod": "",
            "changefreq": "",
            "priority": "",
            "sitemap": SITEMAP,
            "extras": "",
            "lastmod_text": 'soon, "maybe"',
        },
    ]


def test_a_site_comes_first_despite_unusual_urls():
    columns = EntryColumns(['https://a.example/"'], [None], [None], [None], [None])
    (row,) = map(orjson.loads, object_lines("s", columns, site='"a"').splitlines())
    assert list(row)[:2] == ["site", "url"]
    assert row["site"] == '"a"'
    lines = (csv_head(with_site=True) + csv_lines("s", columns, site='=1"a"')).decode()
    (cells,) = csv.DictReader(io.StringIO(lines))
    assert cells["site"] == '\'=1"a"'
    assert cells["url"] == 'https://a.example/"'
