"""Whole documents, good and broken, from bytes to columns."""

from __future__ import annotations

import gzip
import tracemalloc
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from siteatlas.scanner.events import ChildLink, SitemapType
from siteatlas.scanner.reading.document import DocumentReader
from tests.fixtures.documents import PROLOG, index_of, read, urlset, urlset_of

ONE = "https://a.example/1"
TWO = "https://a.example/2"
PAIR = f"<url><loc>{ONE}</loc></url><url><loc>{TWO}</loc></url>"


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def test_reads_all_values_of_an_entry():
    document = read(
        urlset(
            f"<url><loc>{ONE}</loc><lastmod>2026-11-02</lastmod>"
            "<changefreq>daily</changefreq><priority>0.8</priority></url>"
        )
    )
    assert document.error is None
    assert document.reader.type is SitemapType.STANDARD
    assert document.urls == [ONE]
    assert document.columns.lastmods == [datetime(2026, 11, 2, tzinfo=UTC)]
    assert document.columns.changefreqs == ["daily"]
    assert document.columns.priorities == [0.8]
    assert document.columns.extras == [None]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(urlset(PAIR), id="ordinary"),
        pytest.param(urlset(PAIR, attributes=""), id="no namespace"),
        pytest.param(urlset(PAIR, attributes='xmlns="http://old.example/84"'), id="old namespace"),
        pytest.param(
            urlset(PAIR.upper().replace("HTTPS://A.EXAMPLE", "https://a.example")).replace(
                b"urlset", b"URLSET"
            ),
            id="upper case",
        ),
        pytest.param(
            f'<s:urlset xmlns:s="x"><s:url><s:loc>{ONE}</s:loc></s:url>'
            f"<s:url><s:loc>{TWO}</s:loc></s:url></s:urlset>".encode(),
            id="prefix",
        ),
        pytest.param(b"\n\n  " + urlset(PAIR), id="blanks before the prolog"),
        pytest.param(b"\xef\xbb\xbf\xef\xbb\xbf" + urlset(PAIR), id="two byte order marks"),
        pytest.param(f"<!DOCTYPE urlset>\n<urlset>{PAIR}</urlset>".encode(), id="doctype"),
        pytest.param(
            f'{PROLOG}<?xml-stylesheet href="a>b"?><!-- > --><urlset a=">">{PAIR}</urlset>'.encode(),
            id="stylesheet and comment",
        ),
        pytest.param(urlset(f"<!-- <url><loc>x</loc></url> -->{PAIR}"), id="comment with an entry"),
        pytest.param(
            urlset(PAIR.replace("<loc>", "<loc>\n   ").replace("</loc>", "\t</loc>")), id="blanks"
        ),
        pytest.param(urlset(PAIR.replace("<url>", '<url id="1">')), id="attributes"),
        pytest.param(urlset(PAIR.replace(ONE, f"<![CDATA[{ONE}]]>")), id="cdata"),
        pytest.param(
            urlset(PAIR.replace("<loc>", "<junk><deep/></junk><loc>")), id="unknown elements"
        ),
        pytest.param(urlset(PAIR.replace("<loc>", "<lastmod/><loc>")), id="empty value"),
        pytest.param(urlset(PAIR) + b"<!-- cached -->", id="comment at the end"),
        pytest.param(urlset(PAIR) + b"\0\0 Warning: foo", id="garbage at the end"),
        pytest.param(gzip.compress(urlset(PAIR)), id="gzip"),
        pytest.param(urlset(PAIR).decode().encode("utf-16"), id="utf-16"),
        pytest.param(f"{ONE}\r\n\r\n# note\r\n{TWO}".encode(), id="text"),
        pytest.param(f"\ufeff{ONE}\n{TWO}\n".encode(), id="text with a mark"),
        pytest.param(f"{ONE}\r{TWO}\r".encode(), id="text of an old Mac"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 11, 65536])
def test_reads_both_urls_of(content, chunk):
    document = read(pieces(content, chunk), block_bytes=0)
    assert (document.urls, document.error_code) == ([ONE, TWO], None)


@pytest.mark.criterion("invalid-sitemaps")
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty"),
        (b" \n\t ", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "html_instead"),
        (b"<html><head></head></html>", "html_instead"),
        (PROLOG.encode() + b'<!DOCTYPE html PUBLIC "x" "y"><html/>', "html_instead"),
        (b"\n<!-- x --><HTML lang='en'>", "html_instead"),
        (b'{"urls": []}', "not_a_sitemap"),
        (b"Not found", "not_a_sitemap"),
        (b"<other/>", "not_a_sitemap"),
        (b"%PDF-1.7 ...", "not_a_sitemap"),
        (b"PK\x03\x04", "not_a_sitemap"),
        (b"<", "not_a_sitemap"),
        (b"<!-- only a comment -->", "not_a_sitemap"),
        (b'<!DOCTYPE urlset [<!ENTITY a "b">]><urlset/>', "xml_entities"),
        (
            b'<!DOCTYPE urlset [<!ENTITY % a SYSTEM "file:///etc/passwd">%a;]><urlset/>',
            "xml_entities",
        ),
    ],
)
def test_reports_why_it_is_no_sitemap(content, code):
    document = read(content)
    assert (document.error_code, document.reader.type) == (code, None)


@pytest.mark.parametrize("content", [b"<urlset/>", b"<urlset></urlset>", urlset(""), b"<rss/>"])
def test_an_empty_sitemap_is_complete(content):
    document = read(content)
    assert (document.urls, document.error) == ([], None)
    assert document.reader.type is not None


def test_an_index_gives_its_children_with_their_dates():
    document = read(
        b'<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        b"<sitemap><lastmod>2026-01-01</lastmod><loc> https://a.example/s.xml </loc>"
        b"</sitemap><sitemap><loc>/relative.xml</loc></sitemap><sitemap/></sitemapindex>"
    )
    assert document.reader.type is SitemapType.INDEX
    assert document.children == [
        ChildLink("https://a.example/s.xml", datetime(2026, 1, 1, tzinfo=UTC)),
        ChildLink("/relative.xml"),
    ]
    assert document.problems == {"relative_url": 1, "loc_missing": 1}


SEVERAL = "<loc>https://a.example/1</loc><loc> </loc><loc>https://a.example/2</loc>"


@pytest.mark.parametrize("end", ["", "<url><loc></broken>"], ids=["parsed", "salvaged"])
@pytest.mark.parametrize("chunk", [7, 65536])
def test_an_index_gives_every_loc_of_an_entry(end, chunk):
    content = f"<sitemapindex>{end}<sitemap>{SEVERAL}<lastmod>2026-01-01</lastmod></sitemap>"
    document = read(pieces(f"{content}</sitemapindex>".encode(), chunk))
    assert [(child.url, child.lastmod and child.lastmod.year) for child in document.children] == [
        ("https://a.example/1", 2026),
        ("https://a.example/2", 2026),
    ]
    assert (document.problems["several_locs"], "loc_missing" in document.problems) == (1, False)


@pytest.mark.parametrize("end", ["", "<url><loc></broken>"], ids=["parsed", "salvaged"])
def test_of_several_locs_of_a_page_the_first_is_kept_and_the_others_are_counted(end):
    document = read(urlset(f"{end}<url>{SEVERAL}</url><url><loc>{TWO}</loc></url>"))
    assert document.urls == [ONE, TWO]
    assert document.problems["several_locs"] == 1


BASE = "https://a.example/blog/feed"


@pytest.mark.parametrize(
    "content",
    [
        b"<rss><channel><item><link>../1</link></item></channel></rss>",
        b"<feed><entry><link href='/1'/></entry></feed>",
        b"https://a.example/0\n" * 5 + b"/1\nnothing\n// a comment\n./x y",
        urlset("<url><loc>/1</loc></url>"),
        urlset("<url></broken><url><loc>/1</loc></url>"),
    ],
    ids=["rss", "atom", "text", "urlset", "salvaged"],
)
def test_relative_urls_of_every_format_are_resolved(content):
    document = read(content, base_url=BASE)
    assert [url for url in document.urls if not url.endswith("/0")] == [ONE]
    left_out = read(content)
    assert [url for url in left_out.urls if not url.endswith("/0")] == []
    assert left_out.problems["relative_url"] == document.problems["relative_url"]


def test_reads_rss_and_atom_feeds():
    rss = read(
        f"<rss><channel><link>https://a.example/</link><item><link>{ONE}</link>"
        f"<pubDate>Mon, 02 Nov 2026 10:00:00 GMT</pubDate></item>"
        f"<item><guid>{TWO}</guid></item></channel></rss>".encode()
    )
    atom = read(
        f'<feed xmlns="http://www.w3.org/2005/Atom"><entry><link rel="self" href="x"/>'
        f'<link href="{ONE}"/><updated>2026-11-02T10:00:00Z</updated></entry></feed>'.encode()
    )
    assert (rss.reader.type, rss.urls) == (SitemapType.RSS, [ONE, TWO])
    assert (atom.reader.type, atom.urls) == (SitemapType.ATOM, [ONE])
    assert rss.columns.lastmods[0] == atom.columns.lastmods[0]


def test_reads_extensions_even_when_their_prefix_is_not_declared():
    document = read(
        urlset(
            f"<url><loc>{ONE}</loc>"
            "<image:image><image:loc>https://i.example/1.png</image:loc></image:image>"
            "<image:image><image:loc>https://i.example/2.png</image:loc></image:image>"
            "<video:video><video:title>T</video:title><video:tag>a</video:tag>"
            "<video:tag>b</video:tag></video:video>"
            "<news:news><news:publication><news:name>N</news:name></news:publication>"
            "<news:title>H</news:title></news:news>"
            '<xhtml:link rel="alternate" hreflang="de" href="https://a.example/de"/></url>'
        )
    )
    assert document.error is None
    assert document.columns.extras == [
        {
            "images": [{"loc": "https://i.example/1.png"}, {"loc": "https://i.example/2.png"}],
            "videos": [{"title": "T", "tag": ["a", "b"]}],
            "news": {"publication": {"name": "N"}, "title": "H"},
            "alternates": [{"hreflang": "de", "href": "https://a.example/de"}],
        }
    ]
    assert document.problems == {"namespace": 1}


@pytest.mark.parametrize(
    ("loc", "url", "problems"),
    [
        ("https://a.example/?a=1&amp;b=2", "https://a.example/?a=1&b=2", {}),
        ("https://a.example/?a=1&b=2", "https://a.example/?a=1&b=2", {"bare_ampersand": 1}),
        ("https://a.example/?a&amp;lt;", "https://a.example/?a&lt;", {}),
        ("https://a.example/?a=1&copy=2", "https://a.example/?a=1&copy=2", {"bare_ampersand": 1}),
        ("https://a.example/?a=1&x;y", "https://a.example/?a=1&x;y", {"bare_ampersand": 1}),
        ("https://a.example/caf&eacute;", "https://a.example/café", {"html_entity": 1}),
        ("https://a.example/it&apos;s&#x41;&#66;", "https://a.example/it'sAB", {}),
        ("<![CDATA[https://a.example/?a=1&b=2]]>", "https://a.example/?a=1&b=2", {}),
        (
            "<![CDATA[https://a.example/]]>?a=1&b=2",
            "https://a.example/?a=1&b=2",
            {"bare_ampersand": 1},
        ),
        ("https://a.example/<b>bold</b>", "https://a.example/bold", {}),
        ("https://a.example/ü", "https://a.example/ü", {}),
    ],
)
@pytest.mark.parametrize("chunk", [1, 65536])
def test_mends_and_counts(loc, url, problems, chunk):
    content = urlset(f"<url><loc>{loc}</loc></url>")
    document = read(pieces(content, chunk), block_bytes=0)
    assert (document.urls, document.error_code) == ([url], None)
    assert document.problems == problems


@pytest.mark.parametrize(
    ("loc", "code"),
    [
        ("", "loc_missing"),
        ("https://a.example/\x07b", "control_char"),
        ("\x00https://a.example/\x1f", "control_char"),
        ("https://a.example/&#0;b", "control_char"),
        ("https://a.example/&#10;b", "control_char"),
        ("https://a.example/&#xD800;b", "bad_unicode"),
        ("https://a.example/\ufffeb", "bad_unicode"),
        ("https://me:secret@a.example/", "credentials"),
        ("javascript:alert(1)", "bad_url"),
        ("page.html", "relative_url"),
        ("https://a.example/" + "x" * 9000, "url_too_long"),
    ],
)
def test_skips_and_counts_what_cannot_be_kept(loc, code):
    document = read(urlset(f"<url><loc>{ONE}</loc></url><url><loc>{loc}</loc></url>"))
    assert (document.urls, document.error) == ([ONE], None)
    assert document.problems[code] == 1
    assert document.reader.tally.skipped == 1


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(urlset(f"{PAIR}<url><loc>https://a.exa")[:-12], "truncated", id="in a loc"),
        pytest.param(urlset(PAIR)[:-10], "truncated", id="before the root's end"),
        pytest.param(urlset(f"{PAIR}<url><loc>x</url>"), "xml_malformed", id="wrong nesting"),
        pytest.param(urlset(f"{PAIR}<url><loc>x</loc <url>"), "xml_malformed", id="broken tag"),
        pytest.param(urlset(PAIR + "<x>" * 300), "xml_limits", id="depth"),
        pytest.param(urlset(f"{PAIR}<{'x' * 60_000}/>"), "xml_limits", id="name"),
        pytest.param(
            urlset(f"{PAIR}<url><loc>{'x' * 12_000_000}</loc></url>"),
            "xml_token_too_long",
            id="text",
        ),
        pytest.param(urlset(PAIR + "<a/>" * 600_000), "xml_limits", id="elements without end"),
    ],
)
def test_a_document_that_breaks_off_keeps_its_complete_entries(content, code):
    document = read(content)
    assert (document.urls, document.error_code) == ([ONE, TWO], code)


def test_a_gzip_document_that_breaks_off_keeps_its_complete_entries():
    urls = [f"https://a.example/{number * 7919 % 100_003}" for number in range(20_000)]
    whole = gzip.compress(urlset_of(urls))
    document = read(whole[: len(whole) // 2])
    assert document.error_code == "truncated"
    assert 5_000 < len(document.urls) < 15_000
    assert document.urls == urls[: len(document.urls)]


def test_a_damaged_gzip_document_keeps_its_complete_entries():
    wire = bytearray(gzip.compress(urlset(PAIR)))
    wire[-6] ^= 0xFF
    document = read(bytes(wire))
    assert (document.urls, document.error_code) == ([ONE, TWO], "corrupt")


def test_a_document_with_too_many_entries_is_cut_at_the_limit():
    urls = [f"https://a.example/{number}" for number in range(50)]
    document = read(urlset_of(urls), max_entries=20)
    assert (document.urls, document.error_code) == (urls[:20], "too_many_entries")
    children = read(index_of(urls), max_entries=20)
    assert (len(children.children), children.error_code) == (20, "too_many_entries")


def test_entries_without_loc_are_counted_not_kept():
    document = read(urlset("<url/>" * 1000))
    assert (document.urls, document.error) == ([], None)
    assert document.problems == {"loc_missing": 1000}


def test_the_hash_of_the_content_is_that_of_the_inflated_bytes():
    content = urlset(PAIR)
    plain, compressed, other = (
        read(document).reader.content_hash()
        for document in (content, gzip.compress(content), urlset(""))
    )
    assert plain.content == compressed.content != other.content
    assert plain.wire != compressed.wire


@pytest.mark.slow
@pytest.mark.criterion("efficient")
def test_memory_stays_flat_while_a_large_document_is_read():
    entry = "<url><loc>https://a.example/{}</loc><image:image><image:loc>https://i.example/</image:loc></image:image></url>"
    wire = gzip.compress(urlset("".join(entry.format(number) for number in range(40_000))))
    reader_options = {"max_entries": 1_000_000}
    tracemalloc.start()
    try:
        for _ in read_without_keeping(wire, **reader_options):
            pass
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def read_without_keeping(wire: bytes, **options):
    reader = DocumentReader(**options)
    for start in range(0, len(wire), 16_384):
        yield from reader.feed(wire[start : start + 16_384])
    yield from reader.close()


@given(st.binary(max_size=2000), st.integers(1, 400))
@example(b"<urlset><url><loc>&#xFFFFFFF;</loc></url></urlset>", 3)
@example(b"<urlset><![CDATA[", 3)
@example(b"\x1f\x8b\x08\x00", 1)
def test_no_bytes_make_the_reader_fail_otherwise_than_with_a_scan_error(content, chunk):
    read(pieces(content, chunk), block_bytes=0)


FRAGMENTS = st.sampled_from(
    [
        "<url>",
        "</url>",
        "<loc>",
        "</loc>",
        "https://a.example/",
        "&",
        "&amp;",
        "&#0;",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "\x00",
        "\ufffe",
        "é",
        "<lastmod>2026</lastmod>",
        "</urlset>",
        "<x:y/>",
    ]
)


@given(st.lists(FRAGMENTS, max_size=40), st.integers(1, 60))
def test_no_shuffled_xml_makes_the_reader_fail_otherwise_than_with_a_scan_error(parts, chunk):
    content = urlset("".join(parts))
    read(pieces(content, chunk), block_bytes=0)
