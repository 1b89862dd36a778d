"""Entries of a document that turns out to be malformed: what is recovered, and what is not."""

from __future__ import annotations

import time

import pytest

from tests.fixtures.documents import NAMESPACE, index_of, read, urlset
from tests.fixtures.reading_paths import ANNOUNCING

BROKEN = "<url><loc>https://a.example/broken</loc></wrong></url>"
CHUNKINGS = [1, 7, 64, 1 << 20]


def entry(name: object, more: str = "") -> str:
    return f"<url><loc>https://a.example/{name}</loc>{more}</url>"


def note(content: str) -> str:
    return f"<note><![CDATA[{content}]]></note>"


def urls_of(content: bytes, chunk_bytes: int) -> list[str]:
    chunks = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)]
    return [url.removeprefix("https://a.example/") for url in read(chunks, block_bytes=0).urls]


@pytest.mark.parametrize("chunk_bytes", CHUNKINGS)
@pytest.mark.parametrize(
    "content", ["x <!-- y", "x --> y", "</url><url>", "<b>&amp;</b>", "", "]] >", "<!-- c -->"]
)
def test_markup_in_cdata_is_text_also_when_entries_are_salvaged(content, chunk_bytes):
    entries = [
        entry(1, note(content)),
        entry(2),
        "<!-- <url><loc>https://a.example/hidden</loc></url> -->",
        BROKEN,
        entry(3, note(content)),
        "<!-- c -->",
        entry(4),
    ]
    assert urls_of(urlset("".join(entries)), chunk_bytes) == ["1", "2", "broken", "3", "4"]


@pytest.mark.parametrize("chunk_bytes", CHUNKINGS)
def test_an_address_in_cdata_is_salvaged_as_the_parser_reads_it(chunk_bytes):
    address = "<url><loc><![CDATA[https://a.example/?a=1&b=%s<c>]]></loc></url>"
    content = urlset(address % 1 + BROKEN + address % 2)
    assert urls_of(content, chunk_bytes) == ["?a=1&b=1<c>", "broken", "?a=1&b=2<c>"]


@pytest.mark.parametrize("chunk_bytes", CHUNKINGS)
def test_a_cdata_section_without_an_end_hides_no_other_entry(chunk_bytes):
    unclosed = "<url><loc><![CDATA[https://a.example/lost</loc></url>"
    closed = "<url><loc><![CDATA[https://a.example/%s]]></loc></url>"
    content = urlset(entry(1) + BROKEN + unclosed + closed % 2 + unclosed + entry(3))
    assert urls_of(content, chunk_bytes) == ["1", "broken", "2", "3"]


@pytest.mark.parametrize("token", ["<![CDATA[", "<!--", "]]>", "<![CDATA[]]", "<![CDATA[<loc>"])
def test_many_sections_without_an_end_take_little_time(token):
    content = urlset(entry(1) + BROKEN + token * 40_000)
    started = time.process_time()
    read(content)
    assert time.process_time() - started < 2


@pytest.mark.slow
def test_what_is_kept_of_a_long_entry_is_searched_once():
    long = "<url>" + "<![CDATA[<loc>]]>" * 14_000 + "</url>"
    content = urlset(BROKEN + long * 4)
    started = time.process_time()
    read(content[at : at + 4096] for at in range(0, len(content), 4096))
    assert time.process_time() - started < 0.8


@pytest.mark.parametrize("chunk_bytes", [*CHUNKINGS, 29, 150])
def test_the_urls_of_videos_neither_repeat_nor_lose_entries_of_a_malformed_document(chunk_bytes):
    video = "<video:video><video:url>https://v.example/</video:url></video:video>"
    more = video + "<priority>0.5</priority>"
    before = [entry(number, more) for number in range(5)]
    after = [entry(number, more) for number in range(6, 9)]
    text = "".join([ANNOUNCING, *before, BROKEN, *after, "</urlset>"])
    names = ["0", "1", "2", "3", "4", "broken", "6", "7", "8"]
    strict = text.replace("<url>", "<url id='1'>")
    for content in (text, strict):
        assert urls_of(content.encode(), chunk_bytes) == names


@pytest.mark.parametrize("chunk_bytes", [*CHUNKINGS, 29, 150])
@pytest.mark.parametrize("prefix", ["", "s:"])
def test_parts_named_like_entries_do_not_repeat_entries_of_a_malformed_document(
    prefix, chunk_bytes
):
    part = "<x:img><x:url>https://i.example/</x:url></x:img>"
    text = "".join(
        f"<{prefix}url a='1'><{prefix}loc>https://a.example/{name}</{prefix}loc>{part}</{prefix}url>"
        for name in (*range(6), "broken</x>", 7, 8)
    )
    content = f"<{prefix}urlset xmlns:x='x' xmlns:s='{NAMESPACE}'>{text}</{prefix}urlset>"
    expected = ["0", "1", "2", "3", "4", "5", "7", "8"]
    assert urls_of(content.encode(), chunk_bytes) == expected


def prefixed(name: object, prefix: str = "s:") -> str:
    return f"<{prefix}url><{prefix}loc>https://a.example/{name}</{prefix}loc></{prefix}url>"


@pytest.mark.parametrize("chunk_bytes", [*CHUNKINGS, 29, 150])
@pytest.mark.parametrize("later_prefix", ["s:", ""], ids=["prefixed", "mixed"])
def test_entries_with_another_prefix_than_the_root_are_salvaged(later_prefix, chunk_bytes):
    before = "".join(map(prefixed, range(3)))
    broken = f"<{later_prefix}url></x></{later_prefix}url>"
    after = "".join(prefixed(number, later_prefix) for number in range(4, 8))
    root = f"<urlset xmlns='{NAMESPACE}' xmlns:s='{NAMESPACE}'>"
    content = f"{root}{before}{broken}{after}</urlset>".encode()
    assert urls_of(content, chunk_bytes) == list("0124567")


def test_entries_of_an_appended_document_with_a_prefix_are_read():
    appended = f"<s:urlset xmlns:s='{NAMESPACE}'>{prefixed(1)}{prefixed(2)}</s:urlset>"
    text = f"<urlset xmlns='{NAMESPACE}'>{prefixed(0, '')}</urlset>{appended}"
    assert urls_of(text.encode(), len(text)) == ["0", "1", "2"]


STRAY_QUOTES = {
    "stray": '<xhtml:link rel="alternate" hreflang="en" href="https://a.example/"x"/>',
    "opening quote missing": '<xhtml:link rel="alternate" hreflang=en" href="https://x.example/"/>',
    "closing quote missing": '<xhtml:link rel="alternate" hreflang="en href="https://x.example/"/>',
    "inch sign": '<image:image alt="TV 55" black"/>',
    "apostrophe": "<image:image alt='it's'/>",
}
NEIGHBOURS = {
    "plain": "<lastmod>2026-11-02</lastmod>",
    "languages": '<xhtml:link rel="alternate" hreflang="de" href="https://a.example/de"/>',
}


@pytest.mark.parametrize("start", ["<url>", "<url id='1'>"], ids=["fast", "strict"])
@pytest.mark.parametrize("more", NEIGHBOURS.values(), ids=NEIGHBOURS)
@pytest.mark.parametrize("quote", STRAY_QUOTES.values(), ids=STRAY_QUOTES)
def test_a_stray_quote_costs_at_most_its_entry(quote, more, start):
    entries = [entry(number, more) for number in range(2001)]
    entries[100] = entry(100, quote + more)
    content = f"{ANNOUNCING}{''.join(entries)}</urlset>".replace("<url>", start).encode()
    document = read(content)
    names = [url.removeprefix("https://a.example/") for url in document.urls]
    assert [name for name in names if name != "100"] == [str(n) for n in range(2001) if n != 100]
    assert document.error_code == "xml_malformed"
    assert document.problems == {"entry_salvaged": 1}
    kept = sum(extra is not None for extra in document.columns.extras)
    assert kept == (2000 if "link" in more else 0)


def test_a_document_that_ends_inside_a_tag_is_truncated_and_not_malformed():
    whole = f"{ANNOUNCING}{entry(1)}{entry(2, NEIGHBOURS['languages'])}"
    for end in range(len(whole) - len(NEIGHBOURS["languages"]) - 5, len(whole)):
        document = read(whole[:end].encode())
        assert (document.error_code, document.problems) == ("truncated", {})


def test_a_feed_with_a_stray_quote_is_malformed():
    items = '<item><enclosure url="x" y"/><link>https://a.example/</link></item>' * 3
    assert read(f"<rss><channel>{items}</channel></rss>".encode()).error_code == "xml_malformed"


@pytest.mark.parametrize("inner", ["{}", "<loc>{}</loc>", "<url><loc>{}</loc></url>"])
def test_entries_inside_an_entry_are_read_the_same_wherever_the_text_is_split(inner):
    nested = "<url>" + inner.format(entry(1) + entry(2)) + "</url>"
    content = f"{ANNOUNCING}{entry(0)}{nested}{entry(3)}</urlset>".encode()
    results = {
        (*document.urls, document.error_code, *document.problems.items())
        for size in (1, 7, 64, 997, 1 << 20)
        for document in [
            read([content[at : at + size] for at in range(0, len(content), size)], block_bytes=0)
        ]
    }
    assert len(results) == 1
    assert "xml_malformed" in results.pop()


@pytest.mark.parametrize("broken", ["", BROKEN], ids=["well-formed", "malformed"])
def test_the_text_of_an_entry_without_loc_is_its_address(broken):
    bare = "<{}>https://a.example/2</{}><{}>\n https://a.example/3 \n</{}><{}>words</{}>"
    pages = read(urlset(entry(1) + broken + bare.replace("{}", "url")))
    expected = ["1", "broken", "2", "3"] if broken else ["1", "2", "3"]
    assert pages.urls == [f"https://a.example/{name}" for name in expected]
    assert pages.problems.get("loc_missing", pages.problems.get("entry_malformed")) == 1
    children = read(urlset(broken + bare.replace("{}", "sitemap"))).children
    assert [child.url for child in children] == ["https://a.example/2", "https://a.example/3"]


def test_a_sitemap_of_the_own_host_without_scheme_gets_one():
    index = index_of(["www.a.example/1.xml", "2.xml", "{{site.url}}/3.xml"])
    document = read(index, base_url="https://a.example/sitemap.xml")
    assert [child.url for child in document.children] == ["https://www.a.example/1.xml", "2.xml"]
    assert document.problems == {"relative_url": 2, "bad_url": 1}


def test_a_host_without_scheme_is_recognized_beside_a_site_on_another_port():
    pages = urlset("<url><loc>a.example/1</loc></url><url><loc>b.example/2</loc></url>")
    document = read(pages, base_url="https://a.example:8443/sitemap.xml")
    assert document.urls == ["https://a.example/1", "https://a.example:8443/b.example/2"]


@pytest.mark.parametrize("size", [*CHUNKINGS[1:], 997])
def test_many_broken_entries_cost_the_others_their_extras_only_beyond_the_first_hundred(size):
    link = NEIGHBOURS["languages"]
    pairs = [entry(f"{n}a", STRAY_QUOTES["stray"]) + entry(f"{n}b", link) for n in range(150)]
    content = f"{ANNOUNCING}{''.join(pairs)}</urlset>".encode()
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    document = read(chunks, block_bytes=0)
    assert (len(document.urls), document.error_code) == (300, "xml_malformed")
    assert document.problems == {"entry_salvaged": 200}
    assert sum(extra is not None for extra in document.columns.extras) == 100


def test_entries_of_which_none_has_an_end_are_salvaged():
    entries = "".join(f"<url><loc>https://a.example/{number}</loc>" for number in range(1000))
    document = read(urlset(entries))
    assert (len(document.urls), document.error_code) == (1000, "xml_malformed")


@pytest.mark.parametrize("size", [*CHUNKINGS, 29])
@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"{entry(0)}<url/>{entry(1, '<sitemap>')}{entry(2)}</urlset>", "012"),
        (f"{prefixed(0)}{entry(1)}</urlset>{prefixed(2)}{entry(3)}</urlset>", "0123"),
        (f"<a>{entry(0)}</a><a>{entry(1)}<!-- </url> --></a>{entry(2, '</x>')}{entry(3)}", "0123"),
    ],
    ids=["empty entry", "other prefix", "elements around entries"],
)
def test_salvage_begins_where_the_parser_ended_however_entries_end(text, names, size):
    content = f"<urlset xmlns='{NAMESPACE}' xmlns:s='{NAMESPACE}'>{text}".encode()
    assert urls_of(content, size) == list(names)
