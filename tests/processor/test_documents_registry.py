"""The documents of a running scan, found by their addresses."""

from __future__ import annotations

from uuid import uuid4

from siteatlas.catalog.sitemaps import KnownSitemap
from siteatlas.processor.documents import DocumentRegistry
from siteatlas.scanner.events import DiscoveryMethod, DocumentClosed, DocumentOutcome

URL = "https://a.example/1.xml"
MOVED = "https://a.example/2.xml"


def test_a_listed_document_keeps_its_id_when_it_is_stored():
    book = DocumentRegistry([])
    listed = book.listed(URL, DiscoveryMethod.SITEMAP_INDEX)
    book.mark_stored([listed.id])
    found = book.find(URL)
    assert found is not None
    assert (found.id, found.url, found.stored, found.fresh) == (listed.id, URL, True, True)
    assert book.find(URL) is found
    assert book.listed(URL, DiscoveryMethod.SITEMAP_INDEX) is found


def test_a_document_that_only_waits_is_not_kept_whole():
    book = DocumentRegistry([])
    listed = book.listed(URL, DiscoveryMethod.SITEMAP_INDEX)
    book.mark_stored([listed.id])
    assert book.id_of(URL) == listed.id
    assert book.find(URL) is not listed


def test_a_document_with_something_to_write_stays_the_same():
    book = DocumentRegistry([])
    listed = book.listed(URL, DiscoveryMethod.SITEMAP_INDEX)
    listed.changes["lastmod"] = "2026-11-01"
    book.mark_stored([listed.id])
    assert book.find(URL) is listed


def test_a_document_that_was_read_and_written_is_not_kept_whole():
    book = DocumentRegistry([])
    read = book.listed(URL, DiscoveryMethod.SITEMAP_INDEX)
    read.close(closed(URL))
    read.changes = {}
    book.mark_stored([read.id])
    assert book.id_of(URL) == read.id
    assert book.find(URL) is not read


def test_a_redirected_document_is_the_same_under_both_addresses_once_it_is_written():
    book = DocumentRegistry([])
    listed = book.listed(URL, DiscoveryMethod.SITEMAP_INDEX)
    book.mark_stored([listed.id])
    moved = book.resolve_redirect(MOVED, URL, DiscoveryMethod.SITEMAP_INDEX)
    moved.changes = {}
    book.mark_stored([moved.id])
    assert moved.id == listed.id
    assert book.find(URL) is book.find(MOVED) is moved


def test_an_address_that_leads_to_another_document_stays_so_when_both_are_written():
    book = DocumentRegistry([])
    first, second = (book.listed(url, DiscoveryMethod.SITEMAP_INDEX) for url in (URL, MOVED))
    book.mark_stored([first.id, second.id])
    assert book.resolve_redirect(MOVED, URL, DiscoveryMethod.SITEMAP_INDEX).id == second.id
    book.mark_stored([first.id, second.id])
    assert book.id_of(URL) == book.id_of(MOVED) == second.id


def test_each_of_many_documents_that_only_wait_is_found_with_what_is_kept_of_it():
    urls = [f"https://a.example/{number}.xml" for number in range(500)]
    stored = [
        KnownSitemap(uuid4(), url, None, DiscoveryMethod.SITEMAP_INDEX.value) for url in urls[:300]
    ]
    book = DocumentRegistry(stored)
    listed = [book.listed(url, DiscoveryMethod.SITEMAP_INDEX) for url in urls[300:]]
    book.mark_stored([document.id for document in listed])
    book.learn(stored)
    ids = [one.id for one in stored] + [one.id for one in listed]
    assert [book.id_of(url) for url in urls] == ids
    found = [book.find(url) for url in urls]
    assert [(one.id, one.fresh) for one in found if one is not None] == [
        (key, place >= 300) for place, key in enumerate(ids)
    ]
    assert [book.find(url) for url in urls] == found
    assert book.id_of("https://a.example/500.xml") is None


def closed(url: str) -> DocumentClosed:
    method = DiscoveryMethod.SITEMAP_INDEX
    return DocumentClosed(
        url=url, requested_url=url, outcome=DocumentOutcome.COMPLETE, method=method
    )
