"""The fast lane and the strict parser must give the same entries, whatever the document."""

from __future__ import annotations

import itertools
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteatlas.scanner.events import EntryColumns
from siteatlas.scanner.formats.fastlane import FastLane
from siteatlas.scanner.formats.urlset import Urlset
from siteatlas.scanner.tally import Tally

ROOT = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
BLANK = st.text(" \t\n\r", max_size=3)
PATH = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
    ),
    max_size=12,
)
URL = st.builds("https://a.example/{}".format, PATH)
ODD_URL = st.one_of(URL, PATH, st.just("ftp://x/"), st.just("http://u@h/"), st.just(""))
DATE = st.sampled_from(["2026-11-02", "2026-11-02T10:00:00+01:00", "2026", "junk", " 2026-01-01 "])
FREQUENCY = st.sampled_from(["daily", "Weekly", "often"])
PRIORITY = st.sampled_from(["0.5", "1", "-1", "high"])


def escaped(text: str, style: str) -> str:
    if style == "numbers":
        return "".join(f"&#{ord(char)};" if char in "&<>'\"" else char for char in text)
    if style == "hexadecimal":
        return "".join(f"&#x{ord(char):x};" if char in "&<>/" else char for char in text)
    return escape(text, {"'": "&apos;", '"': "&quot;"})


@st.composite
def entry(draw, urls=ODD_URL):
    style = draw(st.sampled_from(["names", "names", "numbers", "hexadecimal"]))
    blank = draw(BLANK)
    fields = [f"<loc>{blank}{escaped(draw(urls), style)}{blank}</loc>"]
    for name, values in (("lastmod", DATE), ("changefreq", FREQUENCY), ("priority", PRIORITY)):
        if draw(st.booleans()):
            fields.append(f"<{name}>{draw(values)}</{name}>")
    if draw(st.integers(0, 9)) == 0:
        fields = draw(st.permutations(fields))
    return f"<url>{blank}{blank.join(fields)}{blank}</url>"


ODDITIES = st.sampled_from(
    [
        "<!-- note -->",
        "<url/>",
        "<url><loc/></url>",
        "<x/>",
        "text",
        "<?pi?>",
        "<url><loc><![CDATA[https://a.example/?a&b]]></loc></url>",
        '<url id="1"></url>',
        "<!-- <url><loc>https://a.example/no</loc></url> -->",
        "<url><lastmod></lastmod></url>",
    ]
)


@st.composite
def body(draw):
    parts = draw(st.lists(st.one_of(entry(), entry(URL), entry(URL)), max_size=12))
    if draw(st.integers(0, 2)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), draw(ODDITIES))
    return draw(BLANK).join(parts) + draw(BLANK) + "</urlset>" + draw(BLANK)


def columns_of(text: str, cuts: list[int], *, fast: bool) -> tuple[EntryColumns, Tally, str | None]:
    tally, found = Tally(), EntryColumns()
    reader = Urlset(ROOT, tally, fast=fast)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    harvests = [reader.feed(text[a:b]) for a, b in itertools.pairwise(edges)]
    harvests.append(reader.feed("", final=True))
    for harvest in harvests:
        found.urls += harvest.columns.urls
        found.lastmods += harvest.columns.lastmods
        found.changefreqs += harvest.columns.changefreqs
        found.priorities += harvest.columns.priorities
        found.extras += harvest.columns.extras
    error = harvests[-1].error
    return found, tally, error.code if error else None


@settings(max_examples=400, deadline=None)
@given(body(), st.lists(st.integers(0, 3000), max_size=8))
def test_both_lanes_give_the_same_entries_wherever_the_document_is_split(text, cuts):
    assert columns_of(text, cuts, fast=True) == columns_of(text, [], fast=False)


@settings(max_examples=100, deadline=None)
@given(body(), st.integers(0, 3000))
def test_both_lanes_give_the_same_entries_of_a_document_that_breaks_off(text, end):
    cut = text[:end]
    assert columns_of(cut, [], fast=True)[0] == columns_of(cut, [], fast=False)[0]


def plain(count: int, order: tuple[str, ...] = ("loc", "lastmod")) -> str:
    values = {"lastmod": "2026-11-02", "changefreq": "daily", "priority": "0.5"}
    return "".join(
        "<url>"
        + "".join(
            f"<{name}>{values.get(name, f'https://a.example/{number}')}</{name}>" for name in order
        )
        + "</url>"
        for number in range(count)
    )


@pytest.mark.parametrize(
    "order",
    [
        ("loc",),
        ("loc", "priority"),
        ("loc", "lastmod", "changefreq", "priority"),
        ("lastmod", "loc"),
        ("priority", "changefreq", "lastmod", "loc"),
    ],
)
def test_a_plain_document_stays_in_the_lane_in_any_order_of_fields(order):
    entries = FastLane().feed(plain(20, order))
    assert entries is not None
    assert list(entries.locs) == [f"https://a.example/{number}" for number in range(20)]
    assert len(set(entries.lastmods)) == 1


@pytest.mark.parametrize(
    "loc", ["https://a.example/?a=1&amp;b=2", "https://a.example/ü", "/relative", "https://u@h/"]
)
def test_an_odd_url_does_not_end_the_lane(loc):
    lane = FastLane()
    assert lane.feed(plain(3)) is not None
    assert lane.feed(f"<url><loc>{loc}</loc></url>") is not None
    assert lane.feed(plain(3)) is not None


@pytest.mark.parametrize("odd", ["<!-- x -->", "<url/>", "<url><loc>x</loc><image/></url>"])
def test_what_is_not_plain_ends_the_lane_and_nothing_before_it_is_lost(odd):
    lane = FastLane()
    text = plain(2) + odd + plain(2)
    assert lane.feed(text) is None
    assert lane.rest == text


def test_text_without_the_end_of_an_entry_is_given_up_before_it_grows_large():
    lane = FastLane()
    assert lane.feed("<url><loc>" + "x" * 1000) is not None
    assert lane.feed("x" * 1_000_000) is None
