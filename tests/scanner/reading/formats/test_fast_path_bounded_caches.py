"""What is cached for the life of the process is short, whatever documents contain."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from siteatlas.scanner.reading.entries import listed_texts
from siteatlas.scanner.reading.formats.fast_path import FastPath
from tests.fixtures.documents import NAMESPACE, ReadDocument, read, urlset

KIB = 1024
IMAGE = 'xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'


def read_long_authority(number: int) -> ReadDocument:
    return read(urlset(f"<url><loc>http://{number}{'a' * 8000}/</loc></url>" * 2))


def read_long_date(number: int) -> ReadDocument:
    date = f"{' ' * 10_000}{1990 + number}-01-01T10:00"
    document = read(urlset(f"<url><loc>http://a.example/</loc><lastmod>{date}</lastmod></url>"))
    assert listed_texts(document.columns.lastmods, [date]) == [date.strip()]
    return document


def read_long_attribute(number: int) -> ReadDocument:
    item = f"<image:image><image:loc a{number}{'a' * 10_000}='1'>x</image:loc></image:image>"
    entry = f"<url a='1'><loc>http://a.example/</loc>{item}</url>"
    return read(urlset(entry, attributes=f'xmlns="{NAMESPACE}" {IMAGE}'))


def read_long_namespace(number: int) -> ReadDocument:
    space = f"urn:{number}:{'n' * 1000}"
    return read(urlset(f"<url><loc>http://a.example/</loc><a xmlns='{space}'/></url>"))


def read_entry_in_long_namespace(number: int) -> ReadDocument:
    space = f"urn:{number}:{'n' * 1000}"
    return read(urlset(f"<url xmlns='{space}'><loc>http://a.example/</loc></url>"))


@pytest.mark.parametrize(
    "read_document",
    [
        read_long_authority,
        read_long_date,
        read_long_attribute,
        read_long_namespace,
        read_entry_in_long_namespace,
    ],
)
def test_long_texts_of_documents_are_not_cached(read_document: Callable[[int], ReadDocument]):
    read_document(99)
    tracemalloc.start()
    for number in range(50):
        assert read_document(number).error is None
    gc.collect()
    taken, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 30 * KIB


def test_a_long_namespace_ends_a_document():
    """The parser would repeat it in the tag of each element."""
    entry = "<url a='1'><loc>http://a.example/</loc></url>"
    document = read(urlset(entry, attributes=f"xmlns = '{'n' * 2000}'"))
    assert document.error_code == "xml_limits"
    assert read(urlset(f"{entry}<a xmlns:n = '{'n' * 2000}'/>")).error_code == "xml_limits"
    assert read(urlset(f"{entry}<a n='{'n' * 2000}'/>")).error_code is None


def entry_with_section(number: int) -> str:
    """An entry with CDATA in a tag that no other entry has, whose name has only letters."""
    name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    tag = name.ljust(200, "x")
    return f"<url><loc>http://a.example/{number}</loc><{tag}><![CDATA[x]]></{tag}></url>"


def test_an_open_document_does_not_keep_the_names_of_all_tags_with_cdata():
    fast_path = FastPath()
    plain = "<url><loc>http://a.example/</loc></url>"
    fast_path.feed(plain)
    tracemalloc.start()
    for start in range(0, 2000, 20):
        fast_path.feed("".join(map(entry_with_section, range(start, start + 20))) + plain)
        fast_path.rest = ""
    gc.collect()
    taken, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 30 * KIB
