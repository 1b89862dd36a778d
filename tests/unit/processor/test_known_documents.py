"""What the scanner is told of stored documents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from siteatlas.processor.fingerprints import READ_VERSION
from siteatlas.processor.known_documents import build_scan_memory
from siteatlas.scanner.events import ChildLink, KnownDocument, SitemapType, Validators
from siteatlas.storage.models import SitemapScanState
from siteatlas.storage.statements.known_sitemaps import KnownSitemap

URL = "https://a.example/1.xml"
MOVED = "https://a.example/moved.xml"
DAY = datetime(2026, 11, 1, tzinfo=UTC)


def known(url: str = URL, **values: Any) -> KnownSitemap:
    read = {
        "id": uuid4(),
        "requested_url": None,
        "discovery_method": "robots_txt",
        "type": "standard",
        "etag": '"1"',
        "content_hash": "ab",
        "wire_bytes": 100,
        "read_version": READ_VERSION,
        "shown_count": 7,
    }
    return KnownSitemap(**{**read, "url": url, **values})


def told(*documents: KnownSitemap) -> dict[str, KnownDocument]:
    return dict(build_scan_memory({one.id: one for one in documents}).documents)


def test_a_document_that_was_read_completely_is_told_as_it_was_then():
    assert told(known()) == {
        URL: KnownDocument(
            URL,
            validators=Validators('"1"'),
            content_hash="ab",
            content_length=100,
            entry_count=7,
            type=SitemapType.STANDARD,
        )
    }


def test_a_document_is_told_by_both_of_its_addresses():
    assert set(told(known(MOVED, requested_url=URL))) == {URL, MOVED}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"read_version": 0}, id="read by another version"),
        pytest.param({"read_version": None}, id="never read completely"),
        pytest.param({"is_gone": True}, id="gone"),
        pytest.param({"etag": None, "content_hash": None}, id="being written"),
        pytest.param({"type": "index", "children": None}, id="links not loaded"),
    ],
)
def test_a_document_that_must_be_read_is_not_told(values):
    assert told(known(**values)) == {}


@pytest.mark.parametrize(
    ("values", "sent"),
    [
        ({"not_modified_count": 8}, True),
        ({"not_modified_count": 9}, False),
        ({"validator_lies": 1}, True),
        ({"validator_lies": 2}, False),
    ],
)
def test_validators_are_not_sent_for_a_tenth_time_or_after_two_lies(values, sent):
    assert told(known(**values))[URL].may_send_validators is sent


def test_an_index_is_told_with_its_children_and_their_dates():
    child = known("https://a.example/c.xml", lastmod=DAY)
    moved = known(MOVED, requested_url="https://a.example/listed.xml")
    parent = known(type="index", children=(child.id, moved.id, UUID(int=1)))
    assert told(parent, child, moved)[URL].children == (
        ChildLink(child.url, DAY),
        ChildLink("https://a.example/listed.xml"),
    )


def test_a_continued_scan_knows_what_is_done_and_the_children_of_this_scan():
    done, touched = SitemapScanState.COMPLETE, SitemapScanState.CUT
    child = known("https://a.example/c.xml", state=touched, read_version=None)
    stale = known("https://a.example/s.xml", read_version=None)
    parent = known(
        MOVED,
        requested_url=URL,
        state=done,
        type="index",
        children=(child.id, stale.id, UUID(int=1)),
    )
    documents = told(parent, child, stale)
    assert set(documents) == {URL, MOVED}
    assert documents[URL].done
    assert [link.url for link in documents[URL].children] == [child.url]
