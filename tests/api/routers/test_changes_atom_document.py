"""The Atom document: valid whatever an event says, and readable by feed readers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from lxml import etree

from siteatlas.api.routers.changes import AtomFeed
from siteatlas.catalog.change_feed import ChangeView
from siteatlas.catalog.newest_changes import PublishedEvent

ATOM = "{http://www.w3.org/2005/Atom}"
AT = datetime(2026, 11, 17, 12, 0, 5, 250_000, tzinfo=UTC)
FEED_ID = UUID(int=7)
CHANGED = ChangeView(
    id="change-7-1",
    seq=7,
    kind="changed",
    domain="example.com:8080",
    url="https://example.com/a?b=1&c=<2>",
    sitemap="https://example.com/sitemap.xml",
    sitemap_id=None,
    previous_sitemap=None,
    previous_sitemap_id=None,
    scan_id=7,
    not_before=None,
    not_after=None,
    before={"lastmod": "2026-11-01"},
    after={"lastmod": "2026-11-02"},
    fields=["lastmod"],
    evidence=None,
    data=None,
)


def document(*events: ChangeView) -> bytes:
    published = [PublishedEvent(event, AT) for event in events]
    base = "http://127.0.0.1:8000"
    address = f"{base}/api/v3/changes.atom?kinds=added"
    return AtomFeed(FEED_ID, "Changes of all sites", "changes", address, base, published).document()


def parsed(*events: ChangeView) -> Any:
    return etree.fromstring(document(*events))


def links(element: Any) -> dict[str, str]:
    return {link.get("rel"): link.get("href") for link in element.findall(f"{ATOM}link")}


def test_feed_and_entries_have_all_that_rfc_4287_requires():
    feed = parsed(CHANGED)
    (entry,) = feed.findall(f"{ATOM}entry")
    for element in (feed, entry):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{ATOM}{name}")) == 1
            assert element.findtext(f"{ATOM}{name}").strip()
    assert feed.findtext(f"{ATOM}author/{ATOM}name") == "Siteatlas"
    assert feed.findtext(f"{ATOM}updated") == "2026-11-17T12:00:05Z"
    assert links(feed) == {"self": "http://127.0.0.1:8000/api/v3/changes.atom?kinds=added"}


def test_an_entry_links_to_the_page_and_to_the_changes():
    entry = parsed(CHANGED).find(f"{ATOM}entry")
    assert entry.findtext(f"{ATOM}id") == f"urn:siteatlas:{FEED_ID}:change-7-1"
    assert links(entry) == {
        "alternate": "https://example.com/a?b=1&c=%3C2%3E",
        "related": "http://127.0.0.1:8000/api/v3/domains/example.com%3A8080/changes?after=6",
    }
    assert entry.find(f"{ATOM}category").get("term") == "changed"
    assert "lastmod: 2026-11-01 -> 2026-11-02" in entry.findtext(f"{ATOM}content")


@pytest.mark.parametrize("text", ["\x01", '"><script>', "]]>", "\ufffe", "ü€😀", "a b", "&amp;"])
def test_whatever_a_url_contains_the_document_is_well_formed(text: str):
    entry = parsed(replace(CHANGED, url=f"https://example.com/{text}")).find(f"{ATOM}entry")
    href = links(entry)["alternate"]
    assert href.isascii()
    assert not set(href) & set(' <>"')


def test_an_event_of_a_site_links_to_its_changes():
    forgotten = replace(CHANGED, kind="domain_forgotten", url=None, sitemap=None, fields=[])
    entry = parsed(forgotten).find(f"{ATOM}entry")
    assert entry.findtext(f"{ATOM}title") == "domain_forgotten: example.com:8080"
    assert links(entry)["alternate"] == links(entry)["related"]


def test_a_long_value_is_shortened():
    extras = {"images": ["https://example.com/image"] * 100}
    changed = replace(CHANGED, fields=["extras"], before=None, after={"extras": extras})
    assert len(parsed(changed).findtext(f"{ATOM}entry/{ATOM}content")) < 500


def test_a_feed_without_events_is_valid():
    feed = parsed()
    assert feed.findtext(f"{ATOM}updated") == "1970-01-01T00:00:00Z"
    assert feed.findall(f"{ATOM}entry") == []


def test_a_feed_that_is_not_complete_says_so():
    events = [PublishedEvent(CHANGED, AT)]
    base = "http://127.0.0.1:8000"
    feed = AtomFeed(FEED_ID, "Changes", "changes", base, base, events, is_complete=False)
    assert "Incomplete" in (etree.fromstring(feed.document()).findtext(f"{ATOM}subtitle") or "")
    assert parsed(CHANGED).find(f"{ATOM}subtitle") is None


def test_feed_readers_understand_it():
    feedparser = pytest.importorskip("feedparser")
    read = feedparser.parse(document(CHANGED, replace(CHANGED, id="change-7-2", kind="added")))
    assert (read.bozo, read.version, read.feed.title) == (False, "atom10", "Changes of all sites")
    assert [entry.title.partition(":")[0] for entry in read.entries] == ["changed", "added"]
    assert read.entries[0].link == "https://example.com/a?b=1&c=%3C2%3E"
    assert read.entries[0].updated_parsed[:6] == (2026, 11, 17, 12, 0, 5)
