"""The elements of an open document."""

from __future__ import annotations

import pytest

from siteatlas.scanner.reading.entries import Tally
from siteatlas.scanner.reading.formats.elements import ElementStream
from tests.fixtures.documents import FORMATS, read
from tests.fixtures.reading_paths import ANNOUNCING, columns_of

URLS = [f"https://a.example/{number}" for number in range(3)]
VIDEO = (
    "<video:video><video:title>T</video:title><video:url>https://v.example/</video:url>"
    "</video:video>"
)


def test_elements_that_were_read_are_not_held_until_the_next_piece_comes():
    stream = ElementStream("<urlset>", ["url"], Tally())
    elements = stream.read("<url><loc>x</loc></url>" * 1_000)
    root = elements[0].getparent()
    assert root is not None
    assert len(root) == len(elements) == 1_000
    del elements
    stream.forget()
    assert [len(child) for child in root] == [0]
    assert len(stream.read("<url><loc>y</loc></url>" * 10)) == 10


@pytest.mark.parametrize("start", ["<url>", "<url id='1'>"])
def test_the_url_of_a_video_is_not_an_entry_wherever_the_text_is_split(start: str):
    entries = [f"{start}<loc>{url}</loc>{VIDEO}<priority>0.5</priority></url>" for url in URLS]
    text = "".join(entries) + "</urlset>"
    whole = columns_of(text, [], fast=False, root=ANNOUNCING)
    assert whole[0].urls == URLS
    assert [extra["videos"][0]["url"] for extra in whole[0].extras if extra] == [
        "https://v.example/"
    ] * len(URLS)
    assert whole[1:] == ({}, 0, None)
    for cut in range(len(entries[0]), 2 * len(entries[0])):
        for fast in (True, False):
            assert columns_of(text, [cut], fast=fast, root=ANNOUNCING) == whole


@pytest.mark.parametrize(
    ("kind", "foreign"),
    [
        ("urlset", "x:url"),
        ("urlset", "x:sitemap"),
        ("urlset", "x:urlset"),
        ("index", "x:url"),
        ("rss", "x:item"),
        ("atom", "x:entry"),
    ],
)
def test_an_element_of_another_namespace_inside_an_entry_is_not_an_entry(kind: str, foreign: str):
    name = FORMATS[kind]
    inner = f'<x:more xmlns:x="urn:x"><{foreign}>v</{foreign}></x:more>'
    links = [f"<{name.link}>{url}</{name.link}>" for url in URLS]
    entries = [f"<{name.entry}>{link}{inner}</{name.entry}>" for link in links]
    text = name.start + "".join(entries) + name.end
    for cut in range(len(name.start), len(name.start) + 2 * len(entries[0])):
        document = read([text[:cut].encode(), text[cut:].encode()], block_bytes=0)
        found = [child.url for child in document.children] if kind == "index" else document.urls
        assert (found, document.problems, document.error_code) == (URLS, {}, None)
