"""URL entries as lines: quick, and exactly what was listed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from siteatlas.cli.entry_stream import object_lines, url_lines
from siteatlas.scanner.events import EntryColumns

SITEMAP = "https://a.example/sitemap.xml"


def columns_of(urls: list[str], extras: list[dict[str, Any] | None] | None = None) -> EntryColumns:
    nothing = [None] * len(urls)
    return EntryColumns(urls, list(nothing), list(nothing), list(nothing), extras or list(nothing))


def entries(encoded: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in encoded.splitlines()]


def test_an_entry_has_the_fields_of_the_api():
    columns = EntryColumns(
        ["https://a.example/"], [datetime(2026, 1, 2, tzinfo=UTC)], ["daily"], [0.8], [None]
    )
    assert object_lines(SITEMAP, columns) == (
        b'{"url":"https://a.example/","lastmod":"2026-01-02T00:00:00Z","changefreq":"daily",'
        b'"priority":0.8,"sitemap":"https://a.example/sitemap.xml","extras":null}\n'
    )


def test_a_url_that_looks_like_the_seam_between_objects_stays_whole():
    urls = ['https://a.example/},{"url":1', "https://a.example/b"]
    assert [entry["url"] for entry in entries(object_lines(SITEMAP, columns_of(urls)))] == urls


def test_extras_that_hold_the_seam_between_objects_stay_whole():
    extras: list[dict[str, Any] | None] = [{"images": [{"url": "x"}, {"url": "y"}]}, None]
    lines = entries(object_lines(SITEMAP, columns_of(["https://a.example/", "b"], extras)))
    assert [entry["extras"] for entry in lines] == extras


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_every_list_of_urls_comes_back_from_its_json_lines(urls: list[str]):
    # Text may hold characters that end a line for `splitlines` but not in bytes.
    lines = object_lines(SITEMAP, columns_of(urls)).split(b"\n")[:-1]
    assert [orjson.loads(line)["url"] for line in lines] == urls


def test_urls_stand_one_a_line_as_they_were_listed():
    assert url_lines(["https://a.example/ü", "b"]) == "https://a.example/ü\nb\n".encode()
    assert url_lines([]) == b""


@given(st.lists(st.text(), min_size=1, max_size=8))
def test_there_are_as_many_lines_as_urls_whatever_they_hold(urls: list[str]):
    encoded = url_lines(urls)
    assert encoded.count(b"\n") == len(urls)
    assert b"\x1b" not in encoded
