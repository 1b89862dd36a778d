"""The queue of a scan: each address once, within its limits."""

from __future__ import annotations

from datetime import UTC, datetime

from siteatlas.net.address import parse_url
from siteatlas.scanner.crawl.document import CrawlCandidate
from siteatlas.scanner.crawl.frontier import Frontier
from siteatlas.scanner.events import DiscoveryMethod


def candidate(url: str, *, depth: int = 0) -> CrawlCandidate:
    return CrawlCandidate(parse_url(url), DiscoveryMethod.SITEMAP_INDEX, depth=depth)


def frontier(*, max_documents: int = 100, max_depth: int = 5) -> Frontier:
    return Frontier("www.a.example", max_documents=max_documents, max_depth=max_depth)


async def test_takes_each_address_once_and_keeps_the_order():
    queue = frontier()
    assert queue.add(candidate("https://a.example/2")) is None
    assert queue.add(candidate("https://a.example/1")) is None
    assert queue.add(candidate("https://A.example:443/2#x")) == "duplicate"
    assert [one.address.path for one in (queue.next(), queue.next()) if one] == ["/2", "/1"]


def test_refuses_what_lies_too_deep():
    assert frontier().add(candidate("https://a.example/x", depth=5)) is None
    assert frontier().add(candidate("https://a.example/x", depth=6)) == "depth_limit"


def test_refuses_more_documents_than_allowed():
    queue = frontier(max_documents=1)
    assert queue.add(candidate("https://a.example/1")) is None
    assert queue.add(candidate("https://a.example/2")) == "document_limit"


def test_takes_twenty_documents_of_a_foreign_domain():
    queue = frontier()
    for number in range(20):
        assert queue.add(candidate(f"https://cdn.other.example/{number}")) is None
    assert queue.add(candidate("https://cdn.other.example/20")) == "cross_host_cap"
    assert queue.add(candidate("https://cdn2.other.example/20")) == "cross_host_cap"
    assert queue.add(candidate("https://another.example/20")) is None


def test_hosts_below_the_site_are_not_foreign():
    queue = frontier()
    for number in range(30):
        assert queue.add(candidate(f"https://maps.a.example/{number}")) is None


def test_a_document_behind_a_redirect_can_be_claimed_once():
    queue = frontier()
    queue.add(candidate("https://a.example/1"))
    assert queue.mark_seen("https://a.example/final")
    assert not queue.mark_seen("https://a.example/final")
    assert not queue.mark_seen("https://a.example/1")
    queue.unmark_seen("https://a.example/final")
    assert queue.mark_seen("https://a.example/final")


async def test_gives_out_what_it_was_given_in_the_same_order():
    day = datetime(2026, 11, 1, tzinfo=UTC)

    def child(
        name: str, parent: str, depth: int, lastmod: datetime | None = None
    ) -> CrawlCandidate:
        return CrawlCandidate(
            parse_url(f"https://a.example/{name}"),
            DiscoveryMethod.SITEMAP_INDEX,
            depth=depth,
            parent_url=f"https://a.example/{parent}",
            parent_host="a.example",
            listed_lastmod=lastmod,
            below_robots=depth == 1,
        )

    first = [child("1", "index", 1), child("2", "index", 1, day)]
    named = CrawlCandidate(parse_url("https://a.example/n"), DiscoveryMethod.ROBOTS_TXT)
    later = [child("3", "other", 2), child("4", "index", 1)]
    queue = frontier()
    for one in [*first, named]:
        queue.add(one)
    given = [queue.next(), queue.next()]
    for one in later:
        queue.add(one)
    given += [queue.next() for _ in range(3)]
    assert given == [*first, named, *later]
