"""Documents made to do harm or made without care, by the rows of the safety table."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import tarfile
import time
import tracemalloc
import zipfile
from dataclasses import dataclass, field

import pytest

from siteatlas.errors import EmptyDocument
from siteatlas.scanner.reading.decoding import BodyLimits
from siteatlas.scanner.reading.document import DocumentReader
from tests.fixtures.documents import PROLOG, index_of, read, urlset, urlset_of

ONE, TWO = "https://a.example/1", "https://a.example/2"
ENTRY = f"<url><loc>{ONE}</loc></url>"
BOTH = urlset_of([ONE, TWO])
LAUGHS = '<!DOCTYPE u [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'
MIB = 1024 * 1024


@dataclass
class Row:
    """A document and what must come of it; `problems` are those that must be counted."""

    content: bytes
    urls: list[str] = field(default_factory=list)
    code: str | None = None
    problems: dict[str, int] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)


def loc(text: str) -> bytes:
    return urlset(f"{ENTRY}<url><loc>{text}</loc></url>")


def skipped(text: str, code: str) -> Row:
    return Row(loc(text), [ONE], problems={code: 1})


def kept(text: str, url: str, **problems: int) -> Row:
    return Row(loc(text), [ONE, url], problems=problems)


def dated(lastmod: str, **problems: int) -> Row:
    content = urlset(f"<url><loc>{ONE}</loc><lastmod>{lastmod}</lastmod></url>")
    return Row(content, [ONE], problems=problems or {"lastmod_invalid": 1})


def archive(kind: str) -> bytes:
    memory = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(memory, "w") as zipped:
            zipped.writestr("sitemap.xml", BOTH)
    else:
        with tarfile.open(fileobj=memory, mode="w:gz") as packed:
            entry = tarfile.TarInfo("sitemap.xml")
            entry.size = len(BOTH)
            packed.addfile(entry, io.BytesIO(BOTH))
    return memory.getvalue()


def damaged(content: bytes, position: int) -> bytes:
    wire = bytearray(gzip.compress(content))
    wire[position] ^= 0xFF
    return bytes(wire)


MANY_ATTRIBUTES = " ".join(f'a{number}="x"' for number in range(20_000))
MANY_NAMESPACES = " ".join(f'xmlns:n{number}="x"' for number in range(20_000))
SLOW_ROWS = {"X13"}
ROWS = {
    "X2": Row(f"{LAUGHS}<urlset><url><loc>&b;</loc></url></urlset>".encode(), code="xml_entities"),
    "X3-file": Row(
        b'<!DOCTYPE u [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset/>', code="xml_entities"
    ),
    "X3-http": Row(
        b'<!DOCTYPE u [<!ENTITY % a SYSTEM "http://127.0.0.1/x">%a;]><urlset/>',
        code="xml_entities",
    ),
    "X3-late": Row(
        b"<!DOCTYPE u [" + b" " * 9000 + b'<!ENTITY a "x">]><urlset/>', code="xml_entities"
    ),
    "X5": Row(
        f"<!DOCTYPE urlset>{BOTH.decode().removeprefix(PROLOG)}".encode(),
        [ONE, TWO],
        problems={"doctype": 1},
    ),
    "X5-external": Row(
        f'<!DOCTYPE urlset SYSTEM "http://127.0.0.1/x.dtd"><urlset>{ENTRY}</urlset>'.encode(),
        [ONE],
        problems={"doctype": 1},
    ),
    "X7": Row(
        f'<?xml-stylesheet href="http://127.0.0.1/x.xsl"?><urlset'
        f' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        f' xmlns:xi="http://www.w3.org/2001/XInclude"'
        f' xsi:schemaLocation="x http://127.0.0.1/x.xsd">{ENTRY}'
        f'<xi:include href="file:///etc/passwd"/></urlset>'.encode(),
        [ONE],
    ),
    "X9": Row(loc("https://a.example/" + "x" * (20 * MIB)), [ONE], "xml_token_too_long"),
    "X9-brackets": Row(loc("https://a.example/" + "x>" * (4 * MIB)), [ONE], "xml_limits"),
    "X10": Row(urlset(f'{ENTRY}<url a="{"x" * (4 * MIB)}"/>'), [ONE], "xml_token_too_long"),
    "X11-name": Row(urlset(f"{ENTRY}<{'x' * MIB}/>"), [ONE], "xml_limits"),
    "X11-attributes": Row(urlset(f"{ENTRY}<url {MANY_ATTRIBUTES}/>"), [ONE], "xml_limits"),
    "X11-namespaces": Row(urlset(f"{ENTRY}<url {MANY_NAMESPACES}/>"), [ONE], "xml_limits"),
    "X11-depth": Row(urlset(ENTRY + "<x>" * 300), [ONE], "xml_limits"),
    "X13": Row(urlset(ENTRY + "<url/>" * 100_000), [ONE], problems={"loc_missing": 100_000}),
    "X14-cdata": kept("<![CDATA[https://a.example/?a=1&b=2]]>", "https://a.example/?a=1&b=2"),
    "X14-comment": kept("https://a.example/x<!-- no -->y", "https://a.example/xy"),
    "X14-elements": kept("https://a.example/<b>bold</b>", "https://a.example/bold"),
    "X17": kept("https://a.example/a&nbsp;b&eacute;", "https://a.example/a\xa0bé", html_entity=2),
    "X17-unknown": kept("https://a.example/&foo;b", "https://a.example/&foo;b", bare_ampersand=1),
    "X19": Row(b"\r\n \n" + BOTH, [ONE, TWO], problems={"leading_blanks": 1}),
    "X20": Row(urlset(f"{ENTRY}<url><loc>https://a.exa")[:-11], [ONE], "truncated"),
    "X21-wrong": Row(
        urlset(ENTRY, attributes='xmlns="http://www.google.com/schemas/sitemap/0.84"'),
        [ONE],
        problems={"namespace": 1},
    ),
    "X21-missing": Row(urlset(ENTRY, attributes=""), [ONE], problems={"namespace": 1}),
    "X21-prefixed": Row(
        f'<s:urlset xmlns="x" xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9">'
        f"<s:url><s:loc>{ONE}</s:loc></s:url></s:urlset>".encode(),
        [ONE],
    ),
    "X21-unused-prefix": Row(
        urlset(ENTRY, attributes='xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9"'),
        [ONE],
        problems={"namespace": 1},
    ),
    "X21-upper": Row(
        f"<URLSET><URL><LOC>{ONE}</LOC></URL></URLSET>".encode(), [ONE], problems={"namespace": 1}
    ),
    "X22-nothing": Row(b"", code="empty"),
    "X22-blanks": Row(b" \n\t\r\n", code="empty"),
    "E1-bom": Row(b"\xef\xbb\xbf" + BOTH, [ONE, TWO]),
    "E1-utf-16": Row(BOTH.decode().replace("UTF-8", "UTF-16").encode("utf-16"), [ONE, TWO]),
    "E1-utf-16-le": Row(BOTH.decode().encode("utf-16-le"), [ONE, TWO]),
    "E1-utf-16-be": Row(BOTH.decode().encode("utf-16-be"), [ONE, TWO]),
    "E2": Row(
        loc("https://a.example/é").decode().encode("latin-1"),
        [ONE, "https://a.example/é"],
        problems={"encoding_lie": 1},
    ),
    "E3": Row(
        loc("https://a.example/é").replace(b"UTF-8", b"ISO-8859-1"),
        [ONE, "https://a.example/é"],
        problems={"encoding_lie": 1},
    ),
    "E6-bom": Row(
        b"\xef\xbb\xbf" + BOTH.replace(b"UTF-8", b"windows-1251"),
        [ONE, TWO],
        problems={"encoding_conflict": 1},
    ),
    "E6-header": Row(
        loc("https://a.example/é"),
        [ONE, "https://a.example/é"],
        problems={"encoding_conflict": 1},
        options={"charset": "koi8-r"},
    ),
    "E7-raw": skipped("https://a.example/a\x00b", "control_char"),
    "E7-reference": skipped("https://a.example/a&#0;b", "control_char"),
    "E8-reference": skipped("https://a.example/&#xD800;", "bad_unicode"),
    "E8-cesu": Row(
        loc("https://a.example/?")
        .replace(b"?", b"\xed\xa0\x80\xed\xb0\x80")
        .replace(b"<\xed\xa0\x80\xed\xb0\x80xml", b"<?xml")
        .replace(b"\xed\xa0\x80\xed\xb0\x80>", b"?>", 1),
        [ONE],
        problems={"bad_unicode": 1},
    ),
    "E8-overlong": Row(
        loc("https://a.example/@").replace(b"@", b"\xc0\xaf"), [ONE], problems={"bad_unicode": 1}
    ),
    "E10-outer": kept("\r\n\t https://a.example/x \n", "https://a.example/x"),
    "E10-inner": skipped("https://a.example/\r\nx", "control_char"),
    "E11": kept("https://a.example/\u202e\u200b\u2028x", "https://a.example/\u202e\u200b\u2028x"),
    "E12": kept("https://bücher.example/straße", "https://bücher.example/straße"),
    "U3": skipped("https://me:secret@a.example/", "credentials"),
    "U4-2049": kept(
        "https://a.example/" + "x" * 2031, "https://a.example/" + "x" * 2031, url_long=1
    ),
    "U4-8193": skipped("https://a.example/" + "x" * 8175, "url_too_long"),
    "U6": kept(
        "https://a.example:443/a/../b//%2e%2e/%00?x#top",
        "https://a.example:443/a/../b//%2e%2e/%00?x#top",
    ),
    "U8-month": dated("9999-99-99"),
    "U8-year-0": dated("0000-01-01"),
    "U8-long": dated("2026-01-01" * 4000),
    "U8-future": dated("9999-01-01"),
    "U8-zone": dated("2026-01-01T00:00:00+99:99"),
    "G3": Row(gzip.compress(gzip.compress(gzip.compress(BOTH))), code="encoding_chain"),
    "G4": Row(gzip.compress(BOTH), [ONE, TWO], options={"content_encoding": "gzip"}),
    "G4-twice": Row(
        gzip.compress(gzip.compress(BOTH)), [ONE, TWO], options={"content_encoding": "gzip"}
    ),
    "G6-plain": Row(BOTH, [ONE, TWO], options={"content_encoding": "gzip"}),
    "G6-gzip": Row(gzip.compress(BOTH), [ONE, TWO]),
    "G8": Row(gzip.compress(b"") * 2000 + gzip.compress(BOTH), code="gzip_members"),
    "G10-truncated": Row(gzip.compress(BOTH)[:-9], [ONE, TWO], "truncated"),
    "G10-checksum": Row(damaged(BOTH, -6), [ONE, TWO], "corrupt"),
    "G10-garbage": Row(
        gzip.compress(BOTH) + b"garbage", [ONE, TWO], problems={"gzip_trailing_garbage": 1}
    ),
    "G13-zip": Row(archive("zip"), code="not_a_sitemap"),
    "G13-tar": Row(archive("tar"), code="not_a_sitemap"),
    "G13-xz": Row(lzma.compress(BOTH), code="not_a_sitemap"),
    "G13-bzip2": Row(bz2.compress(BOTH), code="not_a_sitemap"),
    "G13-pdf": Row(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", code="not_a_sitemap"),
    "G13-png": Row(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", code="not_a_sitemap"),
    "H9-json": Row(b'{"error": "not found"}', code="not_a_sitemap"),
    "H9-html": Row(b"<!doctype html><title>Oops</title>", code="html_instead"),
    "H9-captcha": Row(b"<html><title>Just a moment...</title></html>", code="blocked"),
    "T10-long-line": Row(
        f"{ONE}\nhttps://a.example/{'x' * MIB}\n{TWO}".encode(),
        [ONE, TWO],
        problems={"url_too_long": 1},
    ),
    "T10-nul": Row(f"{ONE}\n{TWO}\nhttps://a.example/\x00".encode(), [ONE, TWO]),
    "T10-html": Row(f"{ONE}\n<html>\n<p>x</p>\n".encode(), code="not_a_sitemap"),
    "T10-comments": Row(b"#\n" * MIB + ONE.encode(), code="not_a_sitemap"),
    "T10-late": Row(
        "\n".join([ONE] * 5000 + ["nonsense"] * 6000).encode(), [ONE] * 5000, "not_a_sitemap"
    ),
}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=name, marks=pytest.mark.slow if name in SLOW_ROWS else ())
        for name, row in ROWS.items()
    ],
)
def test_a_hostile_document_does_no_harm(row):
    document = read(
        [row.content[start : start + 65536] for start in range(0, len(row.content), 65536)],
        **row.options,
    )
    assert (document.urls, document.error_code) == (row.urls, row.code)
    assert {code: document.problems.get(code) for code in row.problems} == row.problems
    assert "\ufffd" not in "".join(document.urls)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2])
def test_a_bomb_stops_at_the_limit(layers):
    """Rows G1 and G2."""
    wire = urlset((ENTRY + " " * 500_000) * 80)
    for _ in range(layers):
        wire = gzip.compress(wire)
    limits = BodyLimits(decoded_bytes=4 * MIB, ratio_from_bytes=2 * MIB)
    document = read(wire, limits=limits)
    assert set(document.urls) == {ONE}
    assert document.error_code == ("too_large" if layers == 1 else "bomb")
    assert document.reader.decoded_bytes < 5 * MIB


def drip_seconds(length: int) -> float:
    content = urlset(f'{ENTRY}<url a="{"x" * length}')
    started = time.process_time()
    document = read(content[start : start + 1] for start in range(len(content)))
    assert document.urls == [ONE]
    return time.process_time() - started


@pytest.mark.slow
def test_a_drip_of_single_bytes_takes_linear_time():
    """Row X10: an attribute that never ends, byte by byte; four times the bytes, not sixteen."""
    assert drip_seconds(200_000) < 9 * drip_seconds(50_000)


def test_blanks_in_front_of_a_document_are_not_kept():
    reader = DocumentReader()
    list(reader.feed(b" "))
    tracemalloc.start()
    for _ in range(64):
        list(reader.feed(b"\r\n \0" * 16_384))
    taken, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < MIB
    with pytest.raises(EmptyDocument):
        list(reader.close())


def test_a_document_behind_many_blanks_is_read():
    document = read([b"\n" * 65_536] * 8 + [b" \t", BOTH])
    assert (document.urls, document.error_code) == ([ONE, TWO], None)
    assert document.problems["leading_blanks"] == 1
    assert read([b"\n" * 65_536] * 8 + [f"{ONE}\n{TWO}\n".encode()]).urls == [ONE, TWO]


def test_no_file_and_no_socket_is_opened_for_a_document():
    """Rows X3, X5 and X7, watched by an audit hook."""
    opened: list[str] = []
    watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in {"open", "socket.connect", "socket.getaddrinfo"}:
            opened.append(f"{event} {arguments}")

    sys.addaudithook(watch)
    for name, row in ROWS.items():
        if name.startswith(("X3", "X5", "X7")):
            read(row.content)
    watching = False
    assert opened == []


def test_children_are_held_to_the_same_rules():
    """Rows E7, U3 and U4 in an index."""
    children = [ONE, "https://me:pw@a.example/", "https://a.example/&#0;x", "x" * 9000]
    document = read(index_of(children))
    assert [child.url for child in document.children] == [ONE]
    assert document.reader.tally.skipped == 3


def test_an_endless_feed_is_cut_at_the_limit_of_entries():
    """Row T9."""
    item = '<item xml:base="https://evil.example/"><link>https://a.example/x</link></item>'
    document = read(f"<rss><channel>{item * 3000}".encode(), max_entries=1000)
    assert (len(document.urls), document.error_code) == (1000, "too_many_entries")
    assert set(document.urls) == {"https://a.example/x"}
