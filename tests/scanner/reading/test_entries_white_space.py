"""What is trimmed from a listed URL, and what is not."""

from __future__ import annotations

import pytest

from tests.fixtures.documents import index_of, read, urlset
from tests.fixtures.reading_paths import columns_of_both_paths

EDGES = ["\x85", "\x1c", "\x1f", "&#x85;", "&#x1d;"]


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("odd", ["", "<x/>"], ids=["fast path", "strict"])
def test_a_control_character_at_the_edge_of_a_url_is_not_trimmed(edge: str, odd: str):
    locs = (f"https://a.example/1{edge}", f"{edge}https://a.example/2", " https://a.example/3\n")
    document = read(urlset("".join(f"<url><loc>{loc}</loc>{odd}</url>" for loc in locs)))
    assert document.urls == ["https://a.example/3"]
    assert document.problems["control_char"] == 2


def test_a_control_character_at_the_edge_of_a_line_or_a_child_is_not_trimmed():
    lines = [f"https://a.example/{number}" for number in range(9)]
    text = "\r\n".join([*lines, "https://a.example/x\x85", "\thttps://a.example/y "])
    assert read(text.encode()).urls == [*lines, "https://a.example/y"]
    assert read(index_of(["https://a.example/x\x85"])).children == []


@pytest.mark.parametrize("odd", ["", "<x/>"], ids=["fast path", "strict"])
def test_blanks_of_unicode_around_a_url_are_trimmed(odd: str):
    locs = ("https://a.example/1\u00a0", "\u3000https://a.example/2")
    document = read(urlset("".join(f"<url><loc>{loc}</loc>{odd}</url>" for loc in locs)))
    assert document.urls == ["https://a.example/1", "https://a.example/2"]


@pytest.mark.parametrize("blank", ["&#13;", "&#10;", "&#9;", "&#32;", " ", "\r"])
def test_blanks_around_the_values_of_extensions_are_trimmed(blank: str):
    image = f"<image:image><image:loc>{blank}https://a.example/i{blank}</image:loc></image:image>"
    entry = f"<url><loc>https://a.example/</loc>{image}</url>"
    fast, strict = columns_of_both_paths([entry] * 4, 2)
    assert fast == strict
    assert fast[0].extras == [{"images": [{"loc": "https://a.example/i"}]}] * 4
