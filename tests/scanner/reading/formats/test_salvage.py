"""Entries of a document that turns out to be malformed: what is recovered, and what is not."""

from __future__ import annotations

import time

import pytest

from tests.fixtures.documents import NAMESPACE, read, urlset
from tests.fixtures.reading_paths import ANNOUNCING

BROKEN = "<url><loc>https://a.example/broken</loc></wrong></url>"
CHUNKINGS = [1, 7, 64, 1 << 20]


def entry(name: object, more: str = "") -> str:
    return f"<url><loc>https://a.example/{name}</loc>{more}</url>"


def note(content: str) -> str:
    return f"<note><![CDATA[{content}]]></note>"


def urls_of(content: bytes, chunk_bytes: int) -> list[str]:
    chunks = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)]
    return [url.removeprefix("https://a.example/") for url in read(chunks, min_chunk_bytes=0).urls]


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
