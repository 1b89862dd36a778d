"""Junk names: what one document does to the dictionary of libxml2 is no matter of any other."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import pytest
from lxml import etree

from siteatlas.scanner.reading import head as name_dictionary
from siteatlas.scanner.reading.document import DocumentReader
from siteatlas.scanner.reading.formats.elements import MAX_SKIPPED_CHARS, NameLimit
from siteatlas.scanner.reading.head import NameDictionary, read_page
from tests.fixtures.documents import FORMATS, ReadDocument, read

OUT_OF_MEMORY = 2
PAGES = [f"https://a.example/{number}" for number in range(200)]


def document_of(kind: str, extra: Callable[[int], str], pages: list[str] = PAGES) -> bytes:
    start, entry, link, end = FORMATS[kind]
    entries = (
        f"<{entry}><{link}>{page}</{link}></{entry}>{extra(number)}"
        for number, page in enumerate(pages)
    )
    return f"{start}{''.join(entries)}{end}".encode()


def listed(document: ReadDocument) -> list[str]:
    return document.urls or [child.url for child in document.children]


def blanks(number: int) -> str:
    return "".join(" \t"[int(bit)] for bit in f"{number:050b}")


JUNK: dict[str, Callable[[int], str]] = {
    "elements": lambda number: f"<e{number}/>",
    "attributes": lambda number: f"<e a{number}=''/>",
    "namespaces": lambda number: f"<e xmlns = 'u{number}'/>",
    "prefixes": lambda number: f"<p{number}:e/>",
    "instructions": lambda number: f"<?p{number} x?>",
    "blanks": lambda number: f"<?p x?><e>{blanks(number)}</e>",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "junk"),
    [*(("urlset", junk) for junk in JUNK), *((kind, "attributes") for kind in FORMATS)],
)
def test_a_document_with_too_many_names_ends_at_the_limit(kind: str, junk: str):
    count = 3 * MAX_SKIPPED_CHARS // 70
    pages = [f"https://a.example/{number}" for number in range(count)]
    content = document_of(kind, JUNK[junk], pages)
    document = read(content[start : start + 65536] for start in range(0, len(content), 65536))
    assert document.error_code == "xml_limits"
    assert listed(document) == pages[: len(listed(document))]


def test_names_in_small_pieces_of_text_are_limited_as_those_in_large_ones():
    names = NameLimit()
    allowed_chars = 0
    for number in range(1000):
        text = "".join(f"<name{number:07}x{place:05}/>" for place in range(200))
        if not names.allows(text):
            break
        allowed_chars += len(text)
    assert allowed_chars < MAX_SKIPPED_CHARS + 64 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["urlset", "rss"])
def test_a_few_names_in_many_places_are_no_junk(kind: str):
    count = 3 * MAX_SKIPPED_CHARS // 70
    pages = [f"https://a.example/{number}" for number in range(count)]
    content = document_of(kind, lambda number: f"<x{number % 50} y{number % 50}='1'/>", pages)
    document = read(content[start : start + 65536] for start in range(0, len(content), 65536))
    assert (document.error_code, listed(document)) == (None, pages)


def test_instructions_behind_the_end_do_not_lose_a_complete_document():
    content = document_of("urlset", lambda _: "")
    more = "".join(f"<?{'p' * 40}{number} x?>" for number in range(120_000)).encode()
    pieces = [content, *(more[start : start + 65536] for start in range(0, len(more), 65536))]
    assert read(pieces).urls == PAGES


def parse(content: str) -> object:
    """The code of the error, if any."""
    try:
        etree.fromstring(content, etree.XMLParser(resolve_entities=False))
    except etree.XMLSyntaxError as error:
        return getattr(error, "code", None)
    return None


def fill(dictionary: NameDictionary) -> None:
    """Long names until there is no room for them, then shorter ones."""
    with dictionary:
        for length in (40_000, 2_000, 200):
            for round_number in range(60):
                names = (f"n{round_number}x{number}".ljust(length, "n") for number in range(100))
                elements = "".join(f"<{name}/>" for name in names)
                if parse(f"<r>{elements}</r>") == OUT_OF_MEMORY:
                    break


@pytest.mark.slow
def test_a_full_dictionary_is_that_of_one_document_only():
    full = NameDictionary()
    fill(full)
    news = "".join(f"<fresh{number:0100}/>" for number in range(2000))
    honest = f"<r>{news}</r>"
    with full:
        assert parse(honest) == OUT_OF_MEMORY
    with NameDictionary():
        assert parse(honest) is None
    with full:
        assert {kind: listed(read(document_of(kind, JUNK["elements"]))) for kind in FORMATS} == (
            dict.fromkeys(FORMATS, PAGES)
        )
        assert parse(honest) == OUT_OF_MEMORY
    assert parse(honest) is None


def test_a_web_page_leaves_no_names_in_the_dictionary_of_the_thread():
    page = "<html fresh=1><title>A shop</title><link rel=sitemap href=/x.xml><stranger></html>"
    with NameDictionary():
        assert read_page(page).title == "A shop"
        assert [tag.attributes["href"] for tag in read_page(page, "link").tags] == ["/x.xml"]
        assert read(page.encode()).error_code == "html_instead"
        # lxml makes one as soon as it parses anything.
        assert name_dictionary.LXML_KEY not in name_dictionary._thread_values()


def junk_of(turn: int) -> Callable[[int], str]:
    return lambda number: f"<x{turn}y{number}/>"


def test_documents_that_are_read_by_turns_keep_to_their_dictionaries():
    contents = {
        (kind, number): document_of(kind, junk_of(number))
        for kind in FORMATS
        for number in range(5)
    }
    readers = {key: DocumentReader(block_bytes=1) for key in contents}
    found: dict[tuple[str, int], int] = dict.fromkeys(contents, 0)
    for start in range(0, max(map(len, contents.values())), 500):
        for key, reader in readers.items():
            for read_result in reader.feed(contents[key][start : start + 500]):
                found[key] += len(read_result.columns) + len(read_result.children)
    for key, reader in readers.items():
        if key[1]:
            for read_result in reader.close():
                found[key] += len(read_result.columns) + len(read_result.children)
    del readers, reader
    assert found == dict.fromkeys(contents, len(PAGES))


class Kept:
    """A value that belongs to one thread."""


def test_what_belongs_to_a_thread_that_read_a_document_ends_with_the_thread():
    belongings = threading.local()
    kept: list[weakref.ref[Kept]] = []
    found: list[list[str]] = []

    def work() -> None:
        belongings.value = Kept()
        kept.append(weakref.ref(belongings.value))
        found.append(listed(read(document_of("rss", junk_of(1)))))

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [PAGES] * 3
    assert [value() for value in kept] == [None] * 3
