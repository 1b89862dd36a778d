"""Documents that take long to read are read in many short steps, and nothing in them changes."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from siteatlas.errors import ScanError, XmlLimits, XmlTokenTooLong
from siteatlas.scanner.reading.decoding import LENIENT_BYTES, TextDecoder
from siteatlas.scanner.reading.document import DocumentReader, load_readers
from siteatlas.scanner.reading.entries import MAX_URL_CHARS, Tally
from siteatlas.scanner.reading.formats.elements import MAX_ELEMENTS
from siteatlas.scanner.reading.formats.salvage import MAX_ENCODED_URL_CHARS, MAX_LOCS, decode_url
from siteatlas.scanner.reading.formats.urlset import Urlset
from siteatlas.scanner.reading.repair import (
    DENSE_PART_CHARS,
    HELD_CHARS,
    XmlRepair,
    split_between_tags,
    split_text,
)
from tests.fixtures.documents import FORMATS, read
from tests.fixtures.reading_paths import ANNOUNCING
from tests.fixtures.timings import measured

CHUNK_BYTES = 64 * 1024
MAX_STEP_SECONDS = 0.03
ROOT = FORMATS["urlset"].start.encode()
INDEX, RSS = FORMATS["index"].start.encode(), FORMATS["rss"].start.encode()
HOSTILE = {
    "ampersands": (ROOT + b"<url><loc>" + b"&" * 200_000 + b"</loc></url>", "bare_ampersand"),
    "names": (ROOT + b"<url><loc>" + b"&a" * 100_000 + b"</loc></url>", "bare_ampersand"),
    "bytes": (ROOT + b"<url><loc>" + b"\xff" * 100_000 + b"</loc></url>", "url_too_long"),
    "some bytes": (ROOT + b"<url><loc>" + b"\xffa" * 100_000 + b"</loc></url>", "url_too_long"),
    "entries": (ROOT + b"<url/>" * 46_000, "loc_missing"),
    "children": (ROOT + b"<sitemap/>" * 29_000, "loc_missing"),
    "malformed": (ROOT + b"<url x></url>" + b"<url>" * 60_000, "entry_malformed"),
    "references": (ROOT + b"<url><loc>" + b"&lt;" * 250_000 + b"</loc></url>", "url_too_long"),
    "numbers": (ROOT + b"<url><loc>" + b"&#60;" * 200_000 + b"</loc></url>", "url_too_long"),
    "undefined bytes": (
        b'<?xml version="1.0" encoding="windows-1252"?>' + ROOT + b"\x81" * 100_000 + b"<url/>",
        "loc_missing",
    ),
    "lines": (b"https://a.example/\n" + b"/\n" * 60_000, "relative_url"),
    "one entry": (ROOT + b"<url>" + b"<loc>a</loc>" * 8_000 + b"</url>", "several_locs"),
    "one child": (INDEX + b"<sitemap>" + b"<loc>a</loc>" * 8_000 + b"</sitemap>", "several_locs"),
    "one item": (RSS + b"<item>" + b"<guid/>" * 8_000 + b"</item>", "loc_missing"),
    "wide entry": (ROOT + b"<url>" + b"<loc>a</loc>" * 60_000 + b"</url>", "several_locs"),
    "wide item": (RSS + b"<item>" + b"<guid/>" * 100_000 + b"</item>", "loc_missing"),
    "deep item": (RSS + b"<item>" + b"<a><b><c/></b></a>" * 8_000 + b"</item>", "extras_cut"),
    "one loc": (ROOT + b"<url><loc>" + b"<a/>" * 200_000 + b"</loc></url>", "extras_cut"),
    "one image": (
        ROOT + b"<url><image>" + (b"<a>" + b"<a/>" * 64 + b"</a>") * 3000 + b"</image></url>",
        "extras_cut",
    ),
    "salvaged child": (
        INDEX + b"<sitemap><x></sitemap><sitemap x>" + b"<loc>a</loc>" * 10_000 + b"</sitemap>",
        "several_locs",
    ),
}
COUNTS = {"ampersands": 200_000, "names": 100_000, "entries": 46_000, "children": 29_000}
COUNTS |= {"bytes": 1, "some bytes": 1, "malformed": 60_001, "lines": 60_000}
COUNTS |= {"one entry": 7_999, "one child": 7_999, "one item": 1, "one loc": 1, "one image": 1}
COUNTS |= {"wide entry": 0, "wide item": 0, "deep item": 1}
COUNTS |= {"salvaged child": 9_999, "references": 1, "numbers": 1, "undefined bytes": 1}


def read_in_steps(content: bytes) -> tuple[float, Counter[str]]:
    """The CPU time of the longest step of reading a document, and its problems."""
    reader = DocumentReader(base_url="https://a.example/s.xml")
    longest = 0.0
    for at in range(0, len(content) + CHUNK_BYTES, CHUNK_BYTES):
        is_end = at >= len(content)
        steps = reader.close() if is_end else reader.feed(content[at : at + CHUNK_BYTES])
        going_on = True
        while going_on:
            started = time.process_time()
            try:
                going_on = next(steps, None) is not None
            except ScanError:
                going_on = False
            longest = max(longest, time.process_time() - started)
    return longest, Counter(reader.tally.counts())


@pytest.fixture
def frozen_objects() -> Iterator[None]:
    """Garbage collections do not look at what other tests left, as in a process that starts."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("frozen_objects")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_step_of_a_hostile_document_takes_long(name: str):
    load_readers()
    content, code = HOSTILE[name]
    longest, counts = read_in_steps(content)
    measured(longest, MAX_STEP_SECONDS)
    assert counts[code] == COUNTS[name]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 30])
def test_repairs_do_not_depend_on_where_the_text_is_split(step: int):
    text = (
        "<a>& &amp; &nbsp;&#5;&foo;&a&b;&&&lt;</a><![CDATA[ & ]] ]]><b>&x</b>"
        "<![CDATA[&]]]]><c>&]]</c>&"
    )
    whole_tally, tally = Tally(), Tally()
    whole = XmlRepair(whole_tally).feed(text, final=True)
    repair = XmlRepair(tally)
    parts = [repair.feed(text[at : at + step]) for at in range(0, len(text), step)]
    assert "".join([*parts, repair.feed("", final=True)]) == whole
    assert (
        tally.counts()
        == whole_tally.counts()
        == {"bare_ampersand": 9, "html_entity": 1, "forbidden_char": 1}
    )


def test_a_text_of_brackets_is_held_no_longer_than_any_other():
    repair = XmlRepair(Tally())
    assert repair.feed("]" * 1000) == ""
    assert repair.feed(">") == "]" * 1000 + ">"


def test_what_is_held_is_limited_after_its_repair_which_may_be_longer():
    repair = XmlRepair(Tally())
    assert repair.feed("&" * (HELD_CHARS // 5)) == ""
    with pytest.raises(XmlTokenTooLong):
        repair.feed("&" * 100)


def test_references_in_a_url_are_replaced_however_many_blanks_are_around_it():
    url = "https://a.example/?a&lt;b"
    assert decode_url(url + " " * MAX_ENCODED_URL_CHARS) == "https://a.example/?a<b"
    assert decode_url(url * MAX_ENCODED_URL_CHARS) == url * MAX_ENCODED_URL_CHARS
    longest = "&#1114111;" * MAX_URL_CHARS
    assert len(decode_url(longest)) == MAX_URL_CHARS


def test_invalid_bytes_are_read_alike_alone_and_in_a_row():
    data = bytes(range(0x80, 0x100)) * 2 + b"\xe2\x81a\xf0\x90\x80\xff\x81\x80\xc0\x80\xed\xa0\x80"
    alone = b"".join(bytes([byte]) + b" " for byte in data)
    expected = "".join(
        bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xC0)
    )
    text = TextDecoder(None, Tally()).decode(b"x" * 300 + data, final=True)
    assert text.startswith("x" * 300 + expected)
    spaced = TextDecoder(None, Tally()).decode(b"x" * 300 + alone, final=True)
    assert spaced[300::2][: len(expected)] == expected


@pytest.mark.parametrize(
    ("charset", "codec"),
    [(None, "utf-8"), ("shift_jis", "shift_jis"), ("windows-1252", "windows-1252")],
)
def test_parts_of_invalid_bytes_give_the_text_of_all_of_them(charset: str | None, codec: str):
    data = ("<a>" + "\u00e4\u65e5" * 9_000).encode() + b"\xe4 \x81" * 9_000
    whole = data.decode(codec, LENIENT_BYTES)
    parts = list(TextDecoder(charset, Tally()).decode_parts(data, final=True))
    assert "".join(text for text, _ in parts) == whole
    assert [is_last for _, is_last in parts] == [False] * (len(parts) - 1) + [True]


def test_parts_make_up_the_text_and_dense_ones_are_small():
    text = "<url/>" * 10_000
    for parts in (list(split_text(text, "<")), list(split_between_tags(text))):
        assert "".join(part for part, _ in parts) == text
        assert max(len(part) for part, _ in parts) <= DENSE_PART_CHARS + len("<url/>")
        assert [is_last for _, is_last in parts] == [False] * (len(parts) - 1) + [True]


def test_entries_of_many_parts_are_read_once_when_the_document_turns_out_malformed():
    entries = [f"<url a='1'><loc>https://a.example/{number}</loc></url>" for number in range(3000)]
    text = "".join([*entries, "<url></x></url>", entries[0], "</urlset>"])
    reader = Urlset(FORMATS["urlset"].start, Tally())
    urls = [url for result in reader.feed(text, final=True) for url in result.columns.urls]
    assert urls == [f"https://a.example/{number}" for number in [*range(3000), 0]]
    assert len(list(Urlset(FORMATS["urlset"].start, Tally()).feed(text))) > 3


@pytest.mark.parametrize("step", [1000, 5000, 1 << 20])
def test_of_an_entry_with_too_many_elements_the_first_ones_are_read(step: int):
    image = "<image:image><image:loc>/a.png</image:loc></image:image>"
    entry = f"<url id='1'><loc>https://a.example/</loc>{'<a><b/></a>' * 3900}{image}</url>"
    long = f"<url><loc>https://a.example/</loc>{'<a><b/></a>' * 4100}{image}</url>"
    content = f"{ANNOUNCING}{entry}{long}{entry}</urlset>".encode()
    document = read(content[at : at + step] for at in range(0, len(content), step))
    assert document.urls == ["https://a.example/"] * 3
    assert [extra and extra.keys() for extra in document.columns.extras] == [
        {"images"},
        None,
        {"images"},
    ]
    assert document.problems == {"extras_cut": 1}


CONTENT = f"<content><div>{'<p>x<b>y</b></p>' * 4100}</div></content>"


@pytest.mark.parametrize(
    ("root", "entry"),
    {
        "page": (ANNOUNCING, f"<url>{CONTENT}<loc>https://a.example/</loc></url>"),
        "feed": (
            '<feed xmlns="http://www.w3.org/2005/Atom">',
            f'<entry>{CONTENT}<link href="https://a.example/"/></entry>',
        ),
    }.values(),
    ids=["page", "feed"],
)
def test_the_address_of_an_entry_is_read_behind_any_number_of_elements(root: str, entry: str):
    document = read(f"{root}{entry}</{root[1:].split(maxsplit=1)[0]}>".encode())
    assert (document.urls, document.error) == (["https://a.example/"], None)


@pytest.mark.parametrize("tag", ["url", "sitemap"])
def test_a_document_whose_entry_has_too_many_children_is_cut(tag: str):
    start = INDEX.decode() if tag == "sitemap" else ANNOUNCING
    locs = "<loc>https://a.example/</loc>" * (MAX_ELEMENTS + 1)
    document = read(f"{start}<{tag}>{locs}</{tag}></{start[1:].split()[0]}>".encode())
    assert isinstance(document.error, XmlLimits)


def test_an_entry_of_an_index_can_have_thousands_of_children():
    urls = [f"https://a.example/{number}.xml" for number in range(7000)]
    locs = "".join(f"<loc>{url}</loc>" for url in urls)
    document = read(INDEX + f"<sitemap>{locs}</sitemap></sitemapindex>".encode())
    assert [child.url for child in document.children] == urls
    assert document.error is None


def test_of_an_entry_of_a_malformed_index_so_many_children_are_read():
    locs = "".join(f"<loc>https://a.example/{number}.xml</loc>" for number in range(MAX_LOCS + 5))
    children = read(INDEX + f"<sitemap>{locs}</x>".encode()).children
    assert len(children) == MAX_LOCS
