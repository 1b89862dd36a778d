"""RSS and Atom feeds: which link and which date of an item counts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from siteatlas.scanner.events import SitemapType
from tests.fixtures.documents import read

ONE = "https://a.example/1"
MOMENT = datetime(2026, 11, 2, 10, tzinfo=UTC)
ATOM = 'xmlns="http://www.w3.org/2005/Atom"'


def rss(item: str, root: str = 'rss version="2.0"') -> bytes:
    name = root.split(maxsplit=1)[0]
    channel = "<title>T</title><link>https://a.example/</link>"
    return f"<{root}><channel>{channel}<item>{item}</item></channel></{name}>".encode()


def atom(entry: str, attributes: str = ATOM) -> bytes:
    own = '<link rel="self" href="https://a.example/feed"/><link href="https://a.example/"/>'
    return f"<feed {attributes}>{own}<entry>{entry}</entry></feed>".encode()


@pytest.mark.parametrize(
    "item",
    [
        f"<link>{ONE}</link>",
        f"<link> {ONE}\n</link><guid>https://a.example/other</guid>",
        f"<link><![CDATA[{ONE}]]></link>",
        f"<guid>{ONE}</guid>",
        f'<guid isPermaLink="true">{ONE}</guid>',
        f'<guid isPermaLink="false">https://a.example/no</guid><link>{ONE}</link>',
        f'<atom:link rel="self" href="https://a.example/no"/><link>{ONE}</link>',
        f'<atom:link rel="alternate" href="{ONE}"/>',
        f'<atom:link href="{ONE}"/><guid>tag:a.example,2026:1</guid>',
        f"<link/><guid>{ONE}</guid>",
        f'<atom:link href="https://a.example/no"/><link>{ONE}</link>',
    ],
)
def test_the_link_of_an_rss_item(item):
    document = read(rss(item))
    assert (document.urls, document.reader.type) == ([ONE], SitemapType.RSS)


@pytest.mark.parametrize(
    "item",
    ['<guid isPermaLink="false">https://a.example/1</guid>', "<guid>7</guid>", "<title>x</title>"],
)
def test_an_rss_item_without_a_link_is_counted(item):
    document = read(rss(item))
    assert (document.urls, document.problems) == ([], {"loc_missing": 1})


@pytest.mark.parametrize(
    "date",
    [
        "<pubDate>Mon, 02 Nov 2026 10:00:00 GMT</pubDate>",
        "<pubDate>Mon, 02 Nov 2026 11:00:00 +0100</pubDate>",
        "<dc:date>2026-11-02T10:00:00Z</dc:date>",
        "<atom:updated>2026-11-02T10:00:00Z</atom:updated><pubDate>junk</pubDate>",
        "<pubDate/><dc:date>2026-11-02T10:00:00Z</dc:date>",
    ],
)
def test_the_date_of_an_rss_item(date):
    assert read(rss(f"<link>{ONE}</link>{date}")).columns.lastmods == [MOMENT]


def test_rss_1_0_names_its_items_in_their_tags():
    document = read(
        b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
        b' xmlns="http://purl.org/rss/1.0/"><channel rdf:about="x"/>'
        b'<item rdf:about="https://a.example/1"><title>T</title></item></rdf:RDF>'
    )
    assert (document.urls, document.reader.type) == ([ONE], SitemapType.RSS)


@pytest.mark.parametrize(
    "links",
    [
        f'<link href="{ONE}"/>',
        f'<link rel="alternate" type="text/html" href="{ONE}"/>',
        f'<link rel="self" href="https://a.example/no"/><link href="{ONE}"/>',
        f'<link rel="enclosure" href="https://a.example/x.mp3"/><link rel="alternate" href="{ONE}"/>',
        f'<link href="{ONE}"/><link href="https://a.example/second"/>',
    ],
)
@pytest.mark.parametrize(
    "attributes",
    [ATOM, 'version="0.3" xmlns="http://purl.org/atom/ns#"', ""],
    ids=["1.0", "0.3", "none"],
)
def test_the_link_of_an_atom_entry(links, attributes):
    document = read(atom(links, attributes))
    assert (document.urls, document.reader.type) == ([ONE], SitemapType.ATOM)


@pytest.mark.parametrize(
    "dates",
    [
        "<updated>2026-11-02T10:00:00Z</updated><published>2020-01-01T00:00:00Z</published>",
        "<published>2026-11-02T10:00:00Z</published>",
        "<modified>2026-11-02T10:00:00Z</modified><issued>2020-01-01T00:00:00Z</issued>",
        "<issued>2026-11-02T10:00:00Z</issued>",
        "<source><updated>2020</updated></source><updated>2026-11-02T10:00:00Z</updated>",
    ],
)
def test_the_date_of_an_atom_entry(dates):
    assert read(atom(f'<link href="{ONE}"/>{dates}')).columns.lastmods == [MOMENT]


def test_xhtml_content_of_an_entry_is_passed_over():
    content = (
        '<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><link href="no"/>'
        "<p>text &nbsp; more</p></div></content>"
    )
    assert read(atom(f'{content}<link href="{ONE}"/>')).urls == [ONE]
