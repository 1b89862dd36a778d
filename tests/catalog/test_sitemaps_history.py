"""How many URLs a document listed after each of its last reads."""

from __future__ import annotations

from uuid import uuid4

from siteatlas.catalog.sitemaps import DocumentRead, url_counts
from siteatlas.storage.models import SitemapScanState


def read(state: SitemapScanState, count: int = 0) -> DocumentRead:
    return DocumentRead(uuid4(), 1, state, 200, None, count, 10, 0.1, None, "https://a.example/")


COMPLETE, UNCHANGED = SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED


def test_an_unchanged_document_has_as_many_urls_as_before():
    reads = [read(COMPLETE, 5), read(UNCHANGED), read(UNCHANGED), read(COMPLETE, 7)]
    assert url_counts(reads) == [5, 5, 5, 7]


def test_a_read_that_failed_or_was_cut_reports_nothing():
    reads = [read(COMPLETE, 5), read(SitemapScanState.UNREAD), read(SitemapScanState.CUT, 2)]
    assert url_counts(reads) == [5]


def test_a_document_that_was_unchanged_before_anything_is_known_of_it_is_left_out():
    assert url_counts([read(UNCHANGED), read(COMPLETE, 3)]) == [3]
