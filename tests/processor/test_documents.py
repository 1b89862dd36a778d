"""What is known of a document during a scan, and what is written of it."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from siteatlas.catalog.sitemaps import KnownSitemap
from siteatlas.catalog.urls import url_hash
from siteatlas.errors import DatabaseUnavailable
from siteatlas.processor.documents import DocumentRegistry, ScannedDocument
from siteatlas.processor.entries import EntryMemory, MemoryBudget
from siteatlas.scanner.events import (
    DiscoveryMethod,
    DocumentClosed,
    DocumentOutcome,
    ProblemSample,
    SitemapType,
    UnchangedBy,
    Validators,
)
from siteatlas.storage.models import SitemapScanState, SitemapStatus
from tests.fixtures.entries import listed_columns

URL = "https://a.example/1.xml"
MOVED = "https://a.example/moved.xml"


def listed(method: DiscoveryMethod = DiscoveryMethod.SITEMAP_INDEX) -> ScannedDocument:
    return DocumentRegistry([]).listed(URL, method)


def closed(outcome: DocumentOutcome, **values) -> DocumentClosed:
    return DocumentClosed(URL, URL, outcome, DiscoveryMethod.ROBOTS_TXT, **values)


def known(url: str, **values) -> KnownSitemap:
    defaults = {
        "id": uuid4(),
        "requested_url": None,
        "discovery_method": "robots_txt",
        "state": None,
    }
    return KnownSitemap(**{**defaults, "url": url, **values})


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (DocumentOutcome.COMPLETE, SitemapStatus.COMPLETED),
        (DocumentOutcome.UNCHANGED, SitemapStatus.COMPLETED),
        (DocumentOutcome.CUT, SitemapStatus.FAILED),
        (DocumentOutcome.UNREAD, SitemapStatus.FAILED),
    ],
)
def test_the_status_of_a_document_follows_from_its_outcome(outcome, status):
    document = listed()
    document.close(closed(outcome))
    assert document.changes["status"] == status
    assert document.scan_row()["state"] == SitemapScanState(outcome.value)


def test_only_a_complete_document_keeps_its_validators():
    validators = Validators(etag='"1"', last_modified="Sun, 01 Nov 2026 12:00:00 GMT")
    complete, partial = listed(), listed()
    complete.close(closed(DocumentOutcome.COMPLETE, validators=validators, content_hash="ab"))
    partial.close(closed(DocumentOutcome.CUT, validators=validators, content_hash="ab"))
    assert (complete.changes["etag"], complete.changes["content_hash"]) == ('"1"', "ab")
    assert not {"etag", "last_modified", "content_hash"} & set(partial.changes)


def test_only_the_same_content_renews_the_validators_of_an_unchanged_document():
    validators = Validators(etag='"2"')
    same, not_modified = listed(), listed()
    same.close(
        closed(
            DocumentOutcome.UNCHANGED,
            validators=validators,
            content_hash="ab",
            unchanged_by=UnchangedBy.CONTENT_HASH,
        )
    )
    not_modified.close(closed(DocumentOutcome.UNCHANGED, unchanged_by=UnchangedBy.NOT_MODIFIED))
    assert (same.changes["etag"], same.changes["content_hash"]) == ('"2"', "ab")
    kept = {"etag", "last_modified", "content_hash", "wire_bytes", "decoded_bytes"}
    assert not kept & set(not_modified.changes)


@pytest.mark.parametrize("etag", ['"' + "x" * 2000 + '"', '"é"', '"a\tb"'])
def test_a_validator_that_cannot_be_sent_back_as_it_is_is_not_stored(etag):
    document = listed()
    document.close(closed(DocumentOutcome.COMPLETE, validators=Validators(etag=etag)))
    assert document.changes["etag"] is None


def test_the_type_is_written_only_when_it_is_known():
    known_type, unknown_type = listed(), listed()
    known_type.close(closed(DocumentOutcome.COMPLETE, type=SitemapType.INDEX))
    unknown_type.close(closed(DocumentOutcome.UNREAD))
    assert known_type.changes["type"] == SitemapType.INDEX
    assert "type" not in unknown_type.changes


def test_closing_counts_what_was_read_and_gives_its_memory_back():
    budget, document = MemoryBudget(10**9), listed()
    document.memory = memory = EntryMemory(budget)
    memory.pick(listed_columns([1, 2, 2], [0, 0, 0], [0, 0, 0]))
    document.close(closed(DocumentOutcome.COMPLETE, entry_count=3))
    assert document.scan_row()["url_count"] == 2
    assert not document.memory
    assert budget.held == 0


def test_problems_of_the_reader_and_of_the_comparison_are_stored_together():
    document = listed()
    document.note_repeated(URL)
    sample = ProblemSample(url=None, value="soon", entry=4)
    document.close(
        closed(
            DocumentOutcome.COMPLETE,
            problems={"bad_lastmod": 7},
            samples={"bad_lastmod": (sample,)},
        )
    )
    found = {one.code: (one.count, len(one.samples)) for one in document.found_problems()}
    assert found == {"bad_lastmod": (7, 1), "duplicate_url": (1, 1)}
    assert document.scan_row()["problems"] == {"bad_lastmod": 7, "duplicate_url": 1}


def test_a_document_without_problems_stores_none():
    document = listed()
    document.close(closed(DocumentOutcome.COMPLETE))
    assert (document.found_problems(), document.scan_row()["problems"]) == ([], None)


def test_a_document_that_a_person_named_stays_manual():
    manual, found = listed(DiscoveryMethod.MANUAL), listed()
    for document in (manual, found):
        document.found_by(DiscoveryMethod.ROBOTS_TXT)
    assert (manual.method, manual.changes) == (DiscoveryMethod.MANUAL, {})
    assert (found.method, found.changes["discovery_method"]) == (
        DiscoveryMethod.ROBOTS_TXT,
        "robots_txt",
    )


def test_a_redirect_moves_the_document_that_was_listed():
    registry = DocumentRegistry([])
    document = registry.listed(URL, DiscoveryMethod.ROBOTS_TXT)
    assert registry.resolve_redirect(MOVED, URL, DiscoveryMethod.ROBOTS_TXT) is document
    assert document.changes == {"url": MOVED, "url_hash": url_hash(MOVED), "requested_url": URL}
    assert registry.find(URL) is registry.find(MOVED) is document


def test_a_redirect_to_a_known_document_leads_to_that_one():
    there = known(MOVED)
    registry = DocumentRegistry([there])
    registry.listed(URL, DiscoveryMethod.ROBOTS_TXT)
    document = registry.resolve_redirect(MOVED, URL, DiscoveryMethod.ROBOTS_TXT)
    assert (document.id, document.stored, document.fresh) == (there.id, True, False)
    assert registry.find(URL) is document


def test_a_stored_document_is_found_by_its_address_and_the_one_it_was_listed_under():
    registry = DocumentRegistry([known(MOVED, requested_url=URL)])
    assert registry.find(MOVED) is registry.find(URL) is not None
    assert registry.id_of("https://a.example/other.xml") is None


@pytest.mark.parametrize(
    ("extras", "flags"),
    [
        ([None, {}, {"alternates": []}], {}),
        ([{"images": ["i"]}, None, {"news": {}, "images": ["j"]}], {"has_images", "has_news"}),
        ([{"videos": []}], {"has_videos"}),
    ],
)
def test_the_kinds_of_extras_in_a_document_are_flagged(extras, flags):
    document = listed()
    document.flag_extras(extras)
    assert document.changes == dict.fromkeys(flags, True)


async def fails() -> None:
    raise DatabaseUnavailable("gone")


async def test_a_failure_to_load_a_document_is_raised_when_its_entries_are_needed():
    document = listed()
    document.start_loading(fails())
    with pytest.raises(DatabaseUnavailable):
        await document.wait_loaded()


async def test_loading_that_is_stopped_has_ended():
    ended = asyncio.Event()

    async def loads() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    document = listed()
    document.start_loading(loads())
    await asyncio.sleep(0)
    await document.abandon()
    assert ended.is_set()
    await document.wait_loaded()


async def test_a_document_that_is_being_loaded_is_not_idle():
    registry = DocumentRegistry([])
    document = registry.listed(URL, DiscoveryMethod.SITEMAP_INDEX)
    document.start_loading(asyncio.sleep(60))
    registry.mark_stored([document.id])
    assert registry.find(URL) is document
    await document.abandon()
    registry.mark_stored([document.id])
    assert registry.find(URL) is not document
