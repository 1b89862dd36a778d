"""Which sitemaps a home page names, and how a scan uses them."""

from __future__ import annotations

import time

import pytest
from aiohttp import web

from siteatlas.scanner.analyzer import ScanOptions
from siteatlas.scanner.discovery.home_page import (
    MAX_LINKS,
    Cms,
    guessed_paths,
    hints_in,
    links_of_page,
    replace_comments,
)
from siteatlas.scanner.events import CandidateJudged, DiscoveryMethod
from siteatlas.scanner.reading.head import read_page
from tests.fixtures.documents import urlset_of
from tests.fixtures.scans import record_scan

URLS = ["https://a.example/1", "https://a.example/2"]
SITEMAP = urlset_of(URLS)


@pytest.mark.parametrize(
    "tag",
    [
        '<link rel="sitemap" href="/map.xml">',
        "<LINK REL=Sitemap TYPE='application/xml' HREF='/map.xml' />",
        '<link href=/map.xml rel="alternate sitemap">',
        '<link\nrel="sitemap"\nhref=" /map.xml "\n>',
        '<link rel="sitemap" href="/map.xml"><link rel="sitemap" href="/map.xml">',
    ],
)
def test_finds_the_sitemap_of_a_page(tag):
    assert links_of_page(read_page(f"<html><head>{tag}</head>", "link").tags, "sitemap") == (
        "/map.xml",
    )


@pytest.mark.parametrize(
    "tag",
    [
        '<link rel="stylesheet" href="/sitemap.css">',
        '<link rel="sitemaps-and-more" href="/map.xml">',
        '<link rel="sitemap">',
        '<a rel="sitemap" href="/map.xml">',
        '&lt;link rel="sitemap" href="/map.xml"&gt;',
        '<!-- <link rel="sitemap" href="/map.xml"> -->',
        '<!-- without an end <link rel="sitemap" href="/map.xml">',
        """<script>write('<link rel="sitemap" href="/map.xml">')</script>""",
        '<link rel="sitemap" href="/map.xm',
        f'<link rel="sitemap" href="/map.xml" title="{"x" * 4096}">',
        "",
    ],
)
def test_finds_no_sitemap_in(tag):
    assert links_of_page(read_page(tag, "link").tags, "sitemap") == ()


def test_decodes_entities_in_a_link():
    page = '<link rel="sitemap" href="/map?a=1&amp;b=2">'
    assert links_of_page(read_page(page, "link").tags, "sitemap") == ("/map?a=1&b=2",)


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ('</map.xml>; rel="sitemap"', ["/map.xml"]),
        ("</map.xml>;rel=sitemap", ["/map.xml"]),
        ('</a>; rel="next", </map.xml>; type="a,b"; rel="sitemap"', ["/map.xml"]),
        ('</map.xml>; title="x"; REL="alternate SiteMap"', ["/map.xml"]),
        ("</map.xml>; url=/other.xml; rel=sitemap", ["/map.xml"]),
        ('</wp-json/>; rel="https://api.w.org/"', []),
        ("</map.xml>", []),
        ("rel=sitemap", []),
        ("<http://[>; rel=sitemap", []),
        ("<" * 4_000, []),
    ],
)
async def test_reads_link_headers(site, make_analyzer, value, paths):
    site.pages |= {
        "/": lambda _: web.Response(text="hello", headers={"Link": value}),
        "/map.xml": SITEMAP,
        "/sitemap.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    named = [
        event.url.removeprefix(site.base.rstrip("/"))
        for event in record.all(CandidateJudged)
        if event.method is DiscoveryMethod.HTTP_HEADER
    ]
    assert named == paths


def test_at_most_20_links_of_a_page_are_followed():
    page = "".join(f'<link rel="sitemap" href="/{number}.xml">' for number in range(30))
    links = links_of_page(read_page(page, "link").tags, "sitemap")
    assert links == tuple(f"/{number}.xml" for number in range(MAX_LINKS))


@pytest.mark.parametrize(
    "text",
    [
        "<link " * 40_000,
        "<!--" * 60_000,
        "<link a=" + "\"'" * 120_000,
        "<link " + "a " * 120_000,
        "<link " + " ".join(f"a{number}" for number in range(30_000)) + ">",
        "<b><table>" * 25_000,
        '<link rel="sitemap" href="x">' * 9_000,
    ],
)
def test_no_page_takes_long(text):
    started = time.process_time()
    links_of_page(read_page(text, "link").tags, "sitemap")
    hints_in(replace_comments("", text))
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("<title>Not found</title>", "Not found"),
        ("<html><TITLE lang=en>\n Caf&eacute; &amp; \t Bar </TITLE>", "Café & Bar"),
        ("<title>One</title><svg><title>Two</title></svg>", "One"),
        ("<!-- <title>Old</title> --><title>New</title>", "New"),
        ("<title>without an end", "without an end"),
        ("<title>" + "x" * 5_000, "x" * 79 + "…"),
        ("<title>red\x1b[31m\u202e</title>", "red [31m"),
        ("<p>none", ""),
        ("", ""),
    ],
)
def test_reads_the_title_of_a_page(page, title):
    assert read_page(page).title == title


@pytest.mark.parametrize(
    ("text", "cms"),
    [
        ('<meta name="generator" content="WordPress 6.9">', Cms.WORDPRESS),
        ('<script src="/wp-content/themes/x.js">', Cms.WORDPRESS),
        ('<script src="//cdn.shopify.com/s/x.js">', Cms.SHOPIFY),
        ("https://static.wixstatic.com/media", Cms.WIX),
        ('<script src="/static/version1700000000/frontend/x.js">', Cms.MAGENTO),
        ('<meta name="generator" content="PrestaShop">', Cms.PRESTASHOP),
        ("https://cdn11.bigcommerce.com/s-1", Cms.BIGCOMMERCE),
        ('<meta name="generator" content="Ghost 5.0">', Cms.GHOST),
        ('<script src="/_next/static/x.js">', Cms.NEXT),
        ('<script src="/_nuxt/x.js">', Cms.NUXT),
        ('<meta name="Generator" content="Drupal 11 (https://www.drupal.org)">', Cms.DRUPAL),
        ('<meta name="generator" content="vBulletin 5.6">', Cms.VBULLETIN),
    ],
)
def test_knows_the_system_behind_a_page(text, cms):
    assert cms in hints_in(text)
    assert hints_in("<p>An ordinary page about ghosts.</p>") == frozenset()


def test_paths_of_the_system_come_before_the_other_usual_ones():
    assert "/1_index_sitemap.xml" in guessed_paths([Cms.PRESTASHOP])[:3]
    assert "/1_index_sitemap.xml" not in guessed_paths()[:20]


async def test_a_link_in_the_home_page_is_followed(site, make_analyzer):
    site.pages |= {
        "/": '<html><head><base href="/deep/"><link rel="sitemap" href="map.xml"></head>',
        "/deep/map.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    assert site.paths == ["/robots.txt", "/", "/deep/map.xml"]
    assert record.all(CandidateJudged)[0].method is DiscoveryMethod.HTML_LINK


async def test_a_link_header_of_the_home_page_is_followed(site, make_analyzer):
    header = {"Link": '<map.xml>; rel="sitemap"'}
    site.pages |= {
        "/": lambda _: web.Response(status=302, headers={"Location": "/en/"}),
        "/en/": lambda _: web.Response(text="hello", headers=header),
        "/en/map.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    assert record.all(CandidateJudged)[0].method is DiscoveryMethod.HTTP_HEADER


async def test_a_link_in_a_comment_is_no_link(site, make_analyzer):
    site.pages |= {
        "/": '<!-- <link rel="sitemap" href="/old.xml"> -->',
        "/old.xml": SITEMAP,
        "/sitemap.xml": SITEMAP,
    }
    await record_scan(make_analyzer(site.host_port), site.base)
    assert "/old.xml" not in site.paths


async def test_a_hint_of_the_system_saves_guesses(site, make_analyzer):
    site.pages |= {
        "/": '<meta name="generator" content="PrestaShop">',
        "/1_index_sitemap.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    assert len(record.verdicts) == 3


async def test_rare_places_are_tried_when_nothing_else_was_found(site, make_analyzer):
    site.pages |= {"/server-sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS


async def test_a_feed_of_the_home_page_is_the_last_resort(site, make_analyzer):
    page = '<link rel="alternate" type="application/rss+xml" href="/blog/rss?x=1">'
    feed = f"<rss><channel><item><link>{URLS[0]}</link></item></channel></rss>"
    site.pages |= {"/": page, "/blog/rss": feed}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS[:1]
    assert record.verdicts["/blog/rss?x=1"] == "accepted"


async def test_a_home_page_that_robots_txt_closes_is_not_read(site, make_analyzer):
    site.pages |= {"/robots.txt": "User-agent: *\nDisallow: /"}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "no_sitemap"
    assert site.paths == ["/robots.txt"]


async def test_at_most_256_kib_of_the_home_page_are_read(site, make_analyzer):
    late = " " * 300_000 + '<link rel="sitemap" href="/late.xml">'
    site.pages |= {"/": late, "/late.xml": SITEMAP, "/sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert "/late.xml" not in site.paths
    assert record.urls == URLS


async def test_a_full_probe_reads_what_every_way_of_discovery_finds(site, make_analyzer):
    page = '<link rel="sitemap" href="/linked.xml">'
    header = {"Link": "</header.xml>; rel=sitemap"}
    site.pages |= {
        "/robots.txt": "Sitemap: /named.xml",
        "/": lambda _: web.Response(text=page, headers=header),
        **{f"/{name}.xml": SITEMAP for name in ("named", "linked", "header", "sitemap1")},
    }
    options = ScanOptions(probe="full")
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    read = {path for path, verdict in record.verdicts.items() if verdict == "accepted"}
    assert read == {"/named.xml", "/linked.xml", "/header.xml", "/sitemap1.xml"}
