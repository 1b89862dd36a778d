"""The documents of a running scan, found by their addresses."""

from __future__ import annotations

from siteatlas.processor.documents import DocumentRegistry
from siteatlas.scanner.events import DiscoveryMethod

URL = "https://a.example/1.xml"


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
    assert book.knows(URL)
    assert book.find(URL) is not listed


def test_a_document_with_something_to_write_stays_the_same():
    book = DocumentRegistry([])
    listed = book.listed(URL, DiscoveryMethod.SITEMAP_INDEX)
    listed.changes["lastmod"] = "2026-11-01"
    book.mark_stored([listed.id])
    assert book.find(URL) is listed
