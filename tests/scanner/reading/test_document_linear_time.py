"""Text that repeats how a pattern begins is searched once, not again from each repetition."""

from __future__ import annotations

import time

import pytest

from siteatlas.scanner.reading.formats.elements import NAMESPACE, has_extreme_tag
from siteatlas.text import clean_text
from tests.fixtures.documents import FORMATS, read
from tests.fixtures.reading_paths import ANNOUNCING
from tests.fixtures.timings import measured

MAX_SECONDS = 0.4
LETTERS = "a" * 60_000
XMLNS = "xmlns" * 12_000
LONG_LINK = f'<xhtml:link rel="{LETTERS}" hreflang="de" href="https://a.example/de"/>'
INDEX = FORMATS["index"]
HOSTILE = {
    "names of namespaces": f"{INDEX.start}<sitemap><loc>{XMLNS}</loc></sitemap>{INDEX.end}",
    "a root tag": f'<urlset a="{XMLNS}"></urlset>',
    "an attribute of a link": (
        f"{ANNOUNCING}<url><loc>https://a.example/</loc>{LONG_LINK}</url></urlset>"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_document_that_repeats_the_start_of_a_pattern_takes_little_time(name: str):
    content = HOSTILE[name].encode()
    started = time.process_time()
    read(content)
    measured(time.process_time() - started, MAX_SECONDS)


def test_the_namespaces_of_a_text_are_found_in_little_time():
    started = time.process_time()
    assert NAMESPACE.findall(f"<a {XMLNS} xmlns:b = 'c'/>") == ["'c'"]
    measured(time.process_time() - started, MAX_SECONDS)


@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
@pytest.mark.parametrize("name", ["xmlns", "xmlns:a", "xmlns:xmlns"])
def test_a_long_namespace_is_extreme_wherever_it_is_declared(blank: str, name: str):
    for size, extreme in ((1023, False), (1024, True)):
        assert has_extreme_tag(f"<a b='xmlns'{blank}{name} = '{'n' * size}'/>") is extreme


def test_a_query_that_repeats_a_word_of_secrets_is_made_safe_in_little_time():
    query = "?" + "token" * 8000
    started = time.process_time()
    assert clean_text(f"{query}=a&x=1") == f"{query}=***&x=1"
    assert clean_text(f"{query}/=a") == f"{query}/=a"
    measured(time.process_time() - started, MAX_SECONDS)
