"""Scans of a real site on loopback: what is read, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from aiohttp import web

from siteatlas.errors import EgressDenied
from siteatlas.net.address import parse_site
from siteatlas.scanner.analyzer import ScanOptions, SitemapAnalyzer
from siteatlas.scanner.events import (
    ChildLink,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    EntriesRead,
    ProblemSeen,
    RobotsRead,
    SitemapType,
    SiteResolved,
    Validators,
)
from siteatlas.scanner.options import KnownDocument
from tests.fixtures.documents import index_of, urlset_of
from tests.fixtures.scans import record_scan

ROBOTS = "User-agent: *\nDisallow: /private/\nSitemap: {base}/sitemap.xml\n"


def pages(prefix: str, count: int) -> list[str]:
    return [f"https://a.example/{prefix}/{number}" for number in range(count)]


def index(*paths: str) -> str:
    return index_of("{base}" + path for path in paths).decode()


@pytest.mark.criterion("discovery")
async def test_reads_the_sitemap_that_robots_txt_names(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": urlset_of(pages("p", 3))}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error is None
    assert record.urls == pages("p", 3)
    assert site.paths == ["/robots.txt", "/sitemap.xml"]
    kinds = [type(event).__name__ for event in record.events]
    assert kinds == [
        *("RobotsRead", "SiteResolved", "DocumentRequested", "CandidateJudged"),
        *("DocumentOpened", "EntriesRead", "DocumentClosed"),
    ]
    assert record.all(RobotsRead)[0].sitemap_urls == (f"{site.base}/sitemap.xml",)
    assert record.all(SiteResolved) == [SiteResolved(site.base)]


async def test_relative_pages_are_resolved_against_the_address_behind_the_redirects(
    site, make_analyzer
):
    async def moved(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/deep/down/s.xml"})

    listed = urlset_of(["page.html", "../up", "/root?a#b", "//b.example/c"])
    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": moved, "/deep/down/s.xml": listed}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == [
        *(f"{site.base}/deep/down/page.html", f"{site.base}/deep/up", f"{site.base}/root?a#b"),
        "http://b.example/c",
    ]
    closed = record.all(DocumentClosed)[0]
    assert (closed.entry_count, closed.skipped_count) == (4, 0)
    assert closed.problems == {"relative_url": 4, "off_host": 1}


async def test_a_closed_document_carries_its_figures(site, make_analyzer):
    content = urlset_of([*pages("p", 2), "mailto:a@b.example"])
    headers = {"ETag": '"v1"', "Last-Modified": "Mon, 02 Nov 2026 10:00:00 GMT"}
    site.pages |= {
        "/robots.txt": ROBOTS,
        "/sitemap.xml": lambda _: web.Response(body=gzip.compress(content), headers=headers),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    closed = record.all(DocumentClosed)[0]
    assert closed.outcome is DocumentOutcome.COMPLETE
    assert (closed.entry_count, closed.skipped_count) == (2, 1)
    assert closed.problems == {"bad_url": 1, "off_host": 2}
    assert closed.decoded_bytes == len(content)
    assert 0 < closed.wire_bytes < 2 * len(content)
    assert closed.validators == Validators('"v1"', "Mon, 02 Nov 2026 10:00:00 GMT")
    assert closed.content_hash is not None


@pytest.mark.criterion("discovery")
async def test_follows_an_index_to_its_children(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: /sitemap.xml",
        "/sitemap.xml": index("/a.xml", "/b.xml.gz", "/deep.xml"),
        "/a.xml": urlset_of(pages("a", 2)),
        "/b.xml.gz": gzip.compress(urlset_of(pages("b", 2))),
        "/deep.xml": index("/c.txt"),
        "/c.txt": "\n".join(pages("c", 2)),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert sorted(record.urls) == sorted(pages("a", 2) + pages("b", 2) + pages("c", 2))
    opened = {event.url.removeprefix(site.base): event for event in record.all(DocumentOpened)}
    assert opened["/c.txt"].type is SitemapType.TEXT
    assert (opened["/c.txt"].depth, opened["/c.txt"].parent_url) == (2, f"{site.base}/deep.xml")
    assert opened["/a.xml"].method is DiscoveryMethod.SITEMAP_INDEX
    children = record.all(ChildrenFound)[0]
    assert children.children[0] == ChildLink(f"{site.base}/a.xml")


async def test_large_documents_come_in_several_events(site, make_analyzer):
    urls = pages("some-longer-path-to-a-page", 20_000)
    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": gzip.compress(urlset_of(urls))}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == urls
    sizes = [len(event.columns) for event in record.all(EntriesRead)]
    assert max(sizes) <= 2000
    assert min(sizes[:-1]) >= 500


async def test_a_limit_that_is_met_while_several_documents_are_read_is_no_fault_of_theirs(
    site, make_analyzer
):
    names = [f"/part-{number}.xml" for number in range(6)]
    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": index(*names)}
    site.pages |= {name: urlset_of(pages(name, 10)) for name in names}
    options = ScanOptions(max_urls=15)
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert len(record.urls) == 15
    assert not [outcome for outcome in record.outcomes.values() if "internal_error" in outcome]


async def test_a_cycle_of_indexes_ends(site, make_analyzer):
    site.pages |= {
        "/robots.txt": ROBOTS,
        "/sitemap.xml": index("/sitemap.xml", "/other.xml", "/moved.xml", "/a.xml"),
        "/other.xml": index("/sitemap.xml", "/a.xml"),
        "/moved.xml": lambda _: web.Response(status=301, headers={"Location": "/sitemap.xml"}),
        "/a.xml": urlset_of(pages("a", 1)),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == pages("a", 1)
    assert sorted(site.paths) == sorted(
        ["/robots.txt", "/sitemap.xml", "/other.xml", "/moved.xml", "/sitemap.xml", "/a.xml"]
    )
    assert record.verdicts["/moved.xml"] == "skipped duplicate"


async def test_depth_has_a_limit(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": index("/1.xml")}
    site.pages |= {f"/{number}.xml": index(f"/{number + 1}.xml") for number in range(1, 9)}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert "/5.xml" in site.paths
    assert "/6.xml" not in site.paths
    assert record.verdicts["/6.xml"] == "skipped depth_limit"
    assert [problem.code for problem in record.all(ProblemSeen)] == ["depth_limit"]


async def test_one_broken_document_does_not_end_the_scan(site, make_analyzer):
    site.pages |= {
        "/robots.txt": ROBOTS,
        "/sitemap.xml": index("/gone.xml", "/html.xml", "/cut.xml", "/empty.xml", "/good.xml"),
        "/html.xml": "<html></html>",
        "/cut.xml": urlset_of(pages("cut", 2))[:-5],
        "/empty.xml": b"",
        "/good.xml": urlset_of(pages("good", 1)),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error is None
    assert record.outcomes == {
        "/sitemap.xml": "complete",
        "/gone.xml": "unread http_not_found",
        "/html.xml": "unread html_instead",
        "/cut.xml": "cut truncated",
        "/empty.xml": "unread empty",
        "/good.xml": "complete",
    }
    assert sorted(record.urls) == sorted(pages("cut", 2) + pages("good", 1))


async def test_children_that_may_not_be_contacted_are_refused_one_by_one(site, make_analyzer):
    site.pages |= {
        "/robots.txt": ROBOTS,
        "/sitemap.xml": index_of(
            ["http://169.254.169.254/s.xml", "http://u:p@127.0.0.1/s.xml", "{base}/good.xml"]
        ).decode(),
        "/good.xml": urlset_of(pages("good", 1)),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == pages("good", 1)
    assert record.verdicts["/s.xml"] == "skipped egress_denied"
    problems = {event.url: event.problems for event in record.all(DocumentClosed)}
    assert problems[f"{site.base}/sitemap.xml"] == {"credentials": 1}


async def test_the_limit_of_urls_cuts_the_scan(site, make_analyzer):
    site.pages |= {
        "/robots.txt": ROBOTS,
        "/sitemap.xml": index("/a.xml", "/b.xml"),
        "/a.xml": urlset_of(pages("a", 30)),
        "/b.xml": urlset_of(pages("b", 30)),
    }
    options = ScanOptions(max_urls=20, urls_done=5, documents_in_flight=1)
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.error is None
    assert record.urls == pages("a", 15)
    assert record.outcomes == {"/sitemap.xml": "complete", "/a.xml": "cut url_limit"}
    assert [problem.code for problem in record.all(ProblemSeen)] == ["url_limit"]


async def test_a_valid_empty_sitemap_is_a_success(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": "<urlset/>"}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert (record.error, record.urls) == (None, [])
    assert record.outcomes == {"/sitemap.xml": "complete"}


async def test_known_validators_are_sent_and_an_unchanged_index_still_leads_to_its_children(
    site, make_analyzer
):
    def unchanged(request: web.BaseRequest) -> web.Response:
        known = request.headers.get("If-None-Match") == '"v1"'
        return web.Response(status=304 if known else 500)

    site.pages |= {
        "/robots.txt": ROBOTS,
        "/sitemap.xml": unchanged,
        "/a.xml": urlset_of(pages("a", 1)),
    }
    url = f"{site.base}/sitemap.xml"
    known = KnownDocument(
        url, validators=Validators('"v1"'), children=(ChildLink(f"{site.base}/a.xml"),)
    )
    memory = {url: known}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.outcomes == {"/sitemap.xml": "unchanged", "/a.xml": "complete"}
    assert record.all(DocumentClosed)[0].validators == Validators('"v1"')


async def test_documents_done_before_are_not_fetched_but_their_children_are(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/b.xml": urlset_of(pages("b", 1))}
    index_url, child_url = f"{site.base}/sitemap.xml", f"{site.base}/a.xml"
    memory = {
        index_url: KnownDocument(
            index_url,
            done=True,
            children=(ChildLink(child_url), ChildLink(f"{site.base}/b.xml")),
        ),
        child_url: KnownDocument(child_url, done=True),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert site.paths == ["/robots.txt", "/b.xml"]
    assert record.outcomes == {"/b.xml": "complete"}


async def test_only_one_document_is_scanned_when_asked_for(site, make_analyzer):
    site.pages |= {
        "/robots.txt": ROBOTS,
        "/one.xml": index("/a.xml"),
        "/a.xml": urlset_of(pages("a", 1)),
    }
    options = ScanOptions(only_document=f"{site.base}/one.xml")
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.outcomes == {"/one.xml": "complete", "/a.xml": "complete"}
    assert site.paths == ["/robots.txt", "/one.xml", "/a.xml"]
    assert not record.all(SiteResolved)


async def test_one_document_is_left_alone_while_robots_txt_cannot_be_read(site, make_analyzer):
    site.pages |= {
        "/robots.txt": lambda _: web.Response(status=503),
        "/one.xml": urlset_of(pages("a", 1)),
    }
    options = ScanOptions(only_document=f"{site.base}/one.xml")
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.error_code == "robots_unreachable"
    assert "/one.xml" not in site.paths


async def test_the_reason_of_the_only_document_is_the_reason_of_the_scan(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": urlset_of(pages("p", 3))}
    options = ScanOptions(only_document=f"{site.base}/one.xml")
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.error_code == "http_not_found"
    assert site.paths == ["/robots.txt", "/one.xml"]


async def test_closing_the_events_ends_the_scan_and_its_connections(site, make_analyzer):
    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"<urlset>")
        while True:
            await response.write(b"<url><loc>https://a.example/x</loc></url>" * 1000)
            await asyncio.sleep(0)

    site.pages |= {
        "/robots.txt": ROBOTS,
        "/sitemap.xml": index("/1.xml", "/2.xml", "/3.xml", "/4.xml"),
        **{f"/{number}.xml": endless for number in range(1, 5)},
    }
    events = make_analyzer(site.host_port).scan(parse_site(site.base))
    async for event in events:
        if isinstance(event, EntriesRead):
            break
    await asyncio.sleep(0.05)
    assert scanning_tasks()
    await asyncio.wait_for(events.aclose(), 2)
    assert scanning_tasks() == []


def scanning_tasks() -> list[str]:
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("SiteScan.", "SitemapAnalyzer."))]


@pytest.mark.slow
async def test_a_slow_reader_of_events_slows_the_site_down(site, make_analyzer):
    sent = 0

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"<urlset>")
        while True:
            await response.write(b"<url><loc>https://a.example/x</loc></url>" * 1000)
            sent += 1000

    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": endless}
    events = make_analyzer(site.host_port).scan(parse_site(site.base))
    async for event in events:
        if isinstance(event, EntriesRead):
            break
    async with asyncio.timeout(10):
        reached = -1
        while sent != reached:
            reached = sent
            await asyncio.sleep(0.3)
        while sent == reached:
            assert isinstance(await anext(events), EntriesRead)
    assert sent > reached
    await events.aclose()


async def test_a_response_in_an_encoding_that_was_not_accepted_is_requested_again(
    site, make_analyzer
):
    def picky(request: web.BaseRequest) -> web.Response:
        if request.headers["Accept-Encoding"] == "identity":
            return web.Response(body=urlset_of(pages("p", 1)))
        return web.Response(body=b"???", headers={"Content-Encoding": "br"})

    def moved(_request: web.BaseRequest) -> web.Response:
        return web.Response(status=302, headers={"Location": "/moved.xml"})

    site.pages |= {"/robots.txt": ROBOTS, "/sitemap.xml": moved, "/moved.xml": picky}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == pages("p", 1)


@pytest.mark.parametrize("extract", [True, False])
async def test_gives_everything_at_once_in_the_shape_of_the_first_version(
    site, make_analyzer, extract
):
    site.pages |= {
        "/robots.txt": ROBOTS,
        "/sitemap.xml": index("/a.xml"),
        "/a.xml": urlset_of(pages("a", 5)),
    }
    analyzer = make_analyzer(site.host_port)
    result = await analyzer.analyze_domain_sitemaps(
        site.base, extract_urls=extract, max_urls_per_sitemap=3
    )
    assert (result["total_sitemaps"], result["total_urls"]) == (2, 5)
    assert result["discovery_methods"] == {"robots_txt": 1, "sitemap_index": 1}
    assert result["sitemap_types"] == {"index": 1, "standard": 1}
    assert [url["loc"] for url in result["urls"]] == (pages("a", 3) if extract else [])
    assert "error" not in result


async def test_a_failure_is_under_error_in_that_shape(make_analyzer):
    result = await make_analyzer().analyze_domain_sitemaps("http://127.0.0.1:9")
    assert result["error"]
    assert result["total_sitemaps"] == 0


@pytest.mark.criterion("call-signatures")
async def test_an_analyzer_without_arguments_contacts_public_addresses_only(site):
    site.pages["/sitemap.xml"] = urlset_of(["{base}/a"]).decode()
    result = await SitemapAnalyzer().analyze_domain_sitemaps(site.base)
    assert result["error"] == EgressDenied().message
    assert site.requests == []
