"""Line and column of a finding are those of the text, whatever its line ends and its encoding."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from siteatlas.cli.lint.reading import Network, lint_all
from siteatlas.findings.judging import Finding, Sample
from siteatlas.findings.positions import OVERLAP, TextPlace, located
from siteatlas.settings import Settings
from tests.findings.cases import SITE, around, page
from tests.fixtures.site_server import SiteServer

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
LINES = around(
    page(f"{SITE}/ä/first", "\n  <lastmod>2026-01-01</lastmod>")
    + page(f"{SITE}/second?a=1&amp;b=2", "\n  <lastmod>yesterday</lastmod>\n  <foo/>")
    + page(f"{SITE}/first#part")
).replace('encoding="UTF-8"', "")
EXPECTED = {"lastmod-invalid": (6, 12), "element-unknown": (7, 3), "url-fragment": (8, 11)}


async def places(
    data: bytes, folder: Path, name: str = "sitemap.xml"
) -> dict[str, tuple[int, int]]:
    file = folder / name
    file.write_bytes(data)
    linted = await lint_all([str(file)], NOW, Network(Settings))
    found = {one.code: one.samples[0] for one in linted.findings if one.samples}
    return {code: (found[code].line or 0, found[code].column or 0) for code in EXPECTED}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(LINES.encode(), id="LF"),
        pytest.param(LINES.replace("\n", "\r\n").encode(), id="CRLF"),
        pytest.param(LINES.replace("\n", "\r").encode(), id="CR"),
        pytest.param(b"\xef\xbb\xbf" + LINES.encode(), id="BOM"),
        pytest.param(LINES.encode("utf-16"), id="UTF-16 with BOM"),
        pytest.param(LINES.encode("utf-16-be"), id="UTF-16 without BOM"),
        pytest.param(gzip.compress(LINES.encode()), id="gzip"),
        pytest.param(gzip.compress(gzip.compress(LINES.encode())), id="gzip twice"),
    ],
)
async def test_a_place_is_that_of_the_text(data: bytes, tmp_path: Path):
    assert await places(data, tmp_path) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("held", [10, 8 * 1024 * 1024])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_a_site_is_judged_like_its_files(held: int, end: str, monkeypatch):
    monkeypatch.setattr("siteatlas.cli.lint.reading.MAX_HELD_BYTES", held)
    text = LINES.replace("\n", end)
    left_out = page("/a", "<priority>9</priority>")
    async with SiteServer({"/robots.txt": "Sitemap: {base}/sitemap.xml.gz\n"}) as server:
        text = text.replace(SITE, server.base).replace("</urlset>", f"{left_out}</urlset>")
        server.pages["/sitemap.xml.gz"] = gzip.compress(text.encode())
        network = Network(partial(Settings, host_delay=0.0), [server.host_port])
        linted = await lint_all([server.base], NOW, network)
    found = {one.code: one.samples[0] for one in linted.findings if one.samples}
    assert {code: (found[code].line, found[code].column) for code in EXPECTED} == EXPECTED
    assert {"url-relative", "priority-invalid"} <= set(found)
    assert (found["url-relative"].line, found["url-relative"].text) == (9, "/a")


async def test_in_one_line_only_the_column_tells(tmp_path: Path):
    line = LINES.replace("\n", "")
    found = await places(line.encode(), tmp_path)
    texts = {
        "lastmod-invalid": "yesterday",
        "element-unknown": "<foo/>",
        "url-fragment": f"{SITE}/first#part",
    }
    assert found == {code: (1, line.index(text) + 1) for code, text in texts.items()}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
async def test_far_into_a_document_the_place_is_still_right(end: str, tmp_path: Path):
    pages = "".join(
        page(f"{SITE}/page/{number}", "<priority>0.5</priority>") for number in range(9000)
    )
    text = around(
        pages + page(f"{SITE}/page/1/", "<lastmod>yesterday</lastmod>\n<foo/>") + page(f"{SITE}/#x")
    )
    found = await places(text.replace("\n", end).encode(), tmp_path)
    start = len(f"<url><loc>{SITE}/page/1/</loc><lastmod>") + 1
    assert found == {
        "lastmod-invalid": (9003, start),
        "element-unknown": (9004, 1),
        "url-fragment": (9005, 11),
    }


def test_a_return_and_a_line_feed_in_two_parts_end_one_line():
    place = TextPlace()
    place.advance("ab\r")
    assert (place.line, place.column) == (2, 1)
    assert place.of("\ncd", 1) == (2, 1)
    place.advance("\nc")
    assert (place.line, place.column) == (2, 2)


def sample_place(text: str, *samples: Sample) -> list[tuple[int | None, int | None]]:
    parts = (text[start : start + 1000] for start in range(0, len(text), 1000))
    (found,) = located([Finding("url-twice", "x", len(samples), samples)], parts)
    return [(one.line, one.column) for one in found.samples]


def test_a_value_is_looked_for_in_the_entry_of_its_url():
    text = (
        "<url><loc>https://a.example/1</loc><lastmod>2026</lastmod></url>\n"
        "<url><lastmod>bad</lastmod><loc>https://a.example/2</loc></url>\n"
        "<url><loc>https://a.example/1</loc><lastmod>bad</lastmod></url>\n"
    )
    wanted = Sample("https://a.example/1", "bad"), Sample("https://a.example/2", "bad")
    assert sample_place(text, *wanted) == [(3, 45), (2, 15)]


def test_a_url_is_not_found_in_a_longer_one():
    text = "<loc>https://a.example/1/2</loc>\n<loc>\n https://a.example/1\n</loc>"
    assert sample_place(text, Sample("https://a.example/1")) == [(3, 2)]


def test_the_second_place_of_a_url_that_is_listed_twice_is_shown():
    text = "https://a.example/1\nhttps://a.example/2\nhttps://a.example/1\n"
    assert sample_place(text, Sample("https://a.example/1", again=1)) == [(3, 1)]


def test_a_place_is_found_also_where_two_parts_of_the_text_meet():
    for blanks in range(2 * OVERLAP - 40, 2 * OVERLAP + 4, 4):
        text = " " * blanks + "\n<loc>https://a.example/1</loc>" + " " * 4 * OVERLAP
        assert sample_place(text, Sample("https://a.example/1")) == [(2, 6)]


@pytest.mark.parametrize("written", ["é", "&#233;", "&#xE9;", "&eacute;"])
def test_a_url_is_found_however_its_characters_are_written(written: str):
    text = f"\n<loc>https://a.example/caf{written}?a&amp;b</loc>"
    assert sample_place(text, Sample("https://a.example/café?a&b")) == [(2, 6)]


async def test_a_fault_of_the_xml_of_a_feed_has_its_place(tmp_path: Path):
    feed = tmp_path / "feed.rss"
    feed.write_text(
        "<rss><channel>\n<item><title>Caf&eacute;</title>\n"
        f"<link>{SITE}/?a&b</link></item>\n</channel></rss>"
    )
    linted = await lint_all([str(feed)], NOW, Network(Settings))
    places = {one.code: (one.samples[0].line, one.samples[0].column) for one in linted.findings}
    assert places == {"html-entity": (2, 17), "bare-ampersand": (3, 33)}


def test_what_the_text_does_not_have_stays_without_a_place():
    assert sample_place("<loc>x</loc>", Sample("https://a.example/1")) == [(None, None)]
