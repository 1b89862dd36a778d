"""What the scanner gets to know of stored documents."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from siteatlas.catalog.sitemaps import KnownSitemap
from siteatlas.processor.documents import build_scan_memory
from siteatlas.processor.entries import READ_VERSION
from siteatlas.scanner.events import ChildLink, SitemapType, Validators
from siteatlas.scanner.options import KnownDocument
from siteatlas.storage.models import SitemapScanState

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


async def known_to_scanner(*documents: KnownSitemap) -> dict[str, KnownDocument]:
    memory = await build_scan_memory({one.id: one for one in documents})
    return dict(memory)


async def test_a_document_that_was_read_completely_is_passed_on_as_it_was_then():
    assert await known_to_scanner(known()) == {
        URL: KnownDocument(
            URL,
            validators=Validators('"1"'),
            content_hash="ab",
            content_length=100,
            entry_count=7,
            type=SitemapType.STANDARD,
        )
    }


async def test_a_document_is_known_by_both_of_its_addresses():
    assert set(await known_to_scanner(known(MOVED, requested_url=URL))) == {URL, MOVED}


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
async def test_a_document_that_must_be_read_is_not_passed_on(values):
    assert await known_to_scanner(known(**values)) == {}


@pytest.mark.parametrize(
    ("values", "sent"),
    [
        ({"not_modified_count": 8}, True),
        ({"not_modified_count": 9}, False),
        ({"validator_lies": 1}, True),
        ({"validator_lies": 2}, False),
    ],
)
async def test_validators_are_not_sent_for_a_tenth_time_or_after_two_lies(values, sent):
    assert (await known_to_scanner(known(**values)))[URL].may_send_validators is sent


async def test_an_index_is_passed_on_with_its_children_and_their_dates():
    child = known("https://a.example/c.xml", lastmod=DAY)
    moved = known(MOVED, requested_url="https://a.example/listed.xml")
    parent = known(type="index", children=(child.id, moved.id, UUID(int=1)))
    assert (await known_to_scanner(parent, child, moved))[URL].children == (
        ChildLink(child.url, DAY),
        ChildLink("https://a.example/listed.xml"),
    )


async def test_a_continued_scan_knows_what_is_done_and_the_children_of_this_scan():
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
    documents = await known_to_scanner(parent, child, stale)
    assert set(documents) == {URL, MOVED}
    assert documents[URL].done
    assert [link.url for link in documents[URL].children] == [child.url]


async def test_thousands_of_documents_are_found_and_take_little_memory():
    children = [
        known(f"https://a.example/{n}.xml", etag=f'"{n:032x}"', content_hash=f"{n:032x}-{n:032x}")
        for n in range(5_000)
    ]
    parent = known(type="index", children=tuple(child.id for child in children))
    by_id = {one.id: one for one in (parent, *children)}
    gc.collect()
    tracemalloc.start()
    memory = await build_scan_memory(by_id)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 200 * len(by_id)
    for child in (children[0], children[2_500], children[-1]):
        assert memory[child.url].validators.etag == child.etag
    assert [link.url for link in memory[URL].children] == [one.url for one in children]
    assert memory.get("https://a.example/5000.xml") is None


async def test_a_final_address_comes_before_a_requested_one():
    elsewhere, here = known(MOVED, requested_url=URL), known(URL)
    for documents in ((elsewhere, here), (here, elsewhere)):
        assert (await known_to_scanner(*documents))[URL].url == URL
