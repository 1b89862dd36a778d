"""The fast path and the strict parser must give the same entries, whatever the document."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteatlas.scanner.reading.formats.fast_path import FastPath
from tests.fixtures.reading_paths import (
    ANNOUNCING,
    BASE,
    BLANK,
    DATE,
    ODD_URL,
    URL,
    columns_of,
    escaped,
    plain,
)

FREQUENCY = st.sampled_from(["daily", "Weekly", "often"])
PRIORITY = st.sampled_from(["0.5", "1", "-1", "high"])


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
        "]]>",
        "<url><loc>https://a.example/]]></loc></url>",
        "<url><loc>https://a.example/</loc><lastmod>2026]]></lastmod></url>",
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
        "<url><loc>https://a.example/1</loc><loc>https://a.example/2</loc></url>",
    ]
)


@st.composite
def body(draw):
    parts = draw(st.lists(st.one_of(entry(), entry(URL), entry(URL)), max_size=12))
    if draw(st.integers(0, 2)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), draw(ODDITIES))
    return draw(BLANK).join(parts) + draw(BLANK) + "</urlset>" + draw(BLANK)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(body(), st.lists(st.integers(0, 3000), max_size=8), st.sampled_from([None, BASE]))
def test_both_ways_give_the_same_entries_wherever_the_document_is_split(text, cuts, base):
    fast = columns_of(text, cuts, fast=True, base=base)
    assert fast == columns_of(text, [], fast=False, base=base)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(body(), st.integers(0, 3000))
def test_both_ways_give_the_same_entries_of_a_document_that_breaks_off(text, end):
    cut = text[:end]
    assert columns_of(cut, [], fast=True)[0] == columns_of(cut, [], fast=False)[0]


@pytest.mark.parametrize("cuts", [[], [3], [40], [90]])
def test_entries_behind_a_root_that_closes_itself_are_salvaged_in_both_ways(cuts):
    text = plain(3) + "</urlset>"
    for fast in (True, False):
        found, problems, _, error = columns_of(text, cuts, fast=fast, root="<urlset/>")
        assert found.urls == [f"https://a.example/{number}" for number in range(3)]
        assert (problems["entry_salvaged"], error) == (3, "xml_malformed")


def test_the_address_of_an_image_is_never_salvaged_as_a_page():
    picture = "<image:image><image:loc>https://a.example/i.jpg</image:loc></image:image>"
    text = plain(1) + f"<url>{picture}<loc>https://a.example/page</loc></url><url></broken>"
    found, problems, *_ = columns_of(text, [], fast=False, root=ANNOUNCING)
    assert problems.get("entry_salvaged", 0) <= 1
    assert found.urls == ["https://a.example/0", "https://a.example/page"]
    torn = f"<url>{picture}<loc>https://a.example/page</loc></broken></url>"
    found, problems, *_ = columns_of(torn, [], fast=False, root=ANNOUNCING)
    assert (found.urls, problems["entry_salvaged"]) == (["https://a.example/page"], 1)


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
def test_a_plain_document_stays_in_the_fast_path_in_any_order_of_fields(order):
    entries = FastPath().feed(plain(20, order))
    assert entries is not None
    assert list(entries.locs) == [f"https://a.example/{number}" for number in range(20)]
    assert set(entries.lastmods) == ({"2026-11-02"} if "lastmod" in order else set())


@pytest.mark.parametrize(
    "loc", ["https://a.example/?a=1&amp;b=2", "https://a.example/ü", "/relative", "https://u@h/"]
)
def test_an_odd_url_does_not_end_the_fast_path(loc):
    fast_path = FastPath()
    assert fast_path.feed(plain(3)) is not None
    assert fast_path.feed(f"<url><loc>{loc}</loc></url>") is not None
    assert fast_path.feed(plain(3)) is not None


@pytest.mark.parametrize(
    "odd", ["<!-- x -- y -->", "<?x?>", "<url/>", "<url><loc>x</loc><image/></url>"]
)
def test_what_is_not_plain_ends_the_fast_path_and_nothing_before_it_is_lost(odd):
    fast_path = FastPath()
    text = plain(2) + odd + plain(2)
    assert fast_path.feed(text) is None
    assert fast_path.rest == text


def test_text_without_the_end_of_an_entry_is_given_up_before_it_grows_large():
    fast_path = FastPath()
    assert fast_path.feed("<url><loc>" + "x" * 1000) is not None
    assert fast_path.feed("x" * 1_000_000) is None
