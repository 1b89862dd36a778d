"""Where sitemaps are looked for, and the true reason when none is found."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Awaitable
from operator import sub

import pytest
from aiohttp import web

from siteatlas.net.address import parse_site, parse_url
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.scanner.crawl.crawl import Crawl
from siteatlas.scanner.crawl.site_scan import MAX_GUESSES
from siteatlas.scanner.discovery.home_page import USUAL_PATHS, Cms, fetch_home_page, guessed_paths
from siteatlas.scanner.discovery.probes import candidate_origins, probe_random_path
from siteatlas.scanner.events import (
    CandidateJudged,
    DiscoveryMethod,
    ProblemSeen,
    RobotsRead,
    SiteResolved,
)
from siteatlas.scanner.options import NOTHING_KNOWN, ScanOptions
from siteatlas.scanner.reading.document import load_readers
from tests.fixtures.documents import urlset_of
from tests.fixtures.scans import record_scan
from tests.fixtures.timings import measured

URLS = ["https://a.example/1", "https://a.example/2"]
SITEMAP = urlset_of(URLS)


def status(code: int, **headers: str):
    return lambda _: web.Response(
        status=code, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


@pytest.mark.parametrize(
    ("site", "origins"),
    [
        ("https://example.com", ["https://example.com", "https://www.example.com"]),
        (
            "www.example.com",
            [
                *("https://www.example.com", "http://www.example.com"),
                *("https://example.com", "http://example.com"),
            ],
        ),
        ("http://example.com:8080/x", ["http://example.com:8080", "http://www.example.com:8080"]),
        ("127.0.0.1:9000", ["https://127.0.0.1:9000", "http://127.0.0.1:9000"]),
        ("localhost:9000", ["https://localhost:9000", "http://localhost:9000"]),
        ("http://[2606:4700::1]/", ["http://[2606:4700::1]"]),
    ],
)
def test_knows_the_origins_that_may_answer(site, origins):
    assert [origin.origin for origin in candidate_origins(parse_site(site))] == origins


def test_guesses_are_few_and_distinct():
    for hints in ((), frozenset(Cms)):
        paths = guessed_paths(hints)
        assert paths[:2] == ("/sitemap.xml", "/sitemap_index.xml")
        assert len(set(paths)) == len(paths) <= MAX_GUESSES


@pytest.mark.criterion("discovery")
async def test_without_a_line_in_robots_txt_the_usual_paths_are_tried_in_order(site, make_analyzer):
    site.pages |= {"/wp-sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    random_path = site.paths[2]
    assert site.paths == [
        *("/robots.txt", "/", random_path),
        *("/sitemap.xml", "/sitemap_index.xml", "/wp-sitemap.xml"),
    ]
    assert record.verdicts == {
        "/sitemap.xml": "rejected http_not_found",
        "/sitemap_index.xml": "rejected http_not_found",
        "/wp-sitemap.xml": "accepted",
    }
    assert record.outcomes == {"/wp-sitemap.xml": "complete"}


async def test_a_sitemap_in_robots_txt_makes_guesses_needless(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP, "/sitemap.xml": SITEMAP}
    await record_scan(make_analyzer(site.host_port), site.base)
    assert site.paths == ["/robots.txt", "/s.xml"]


async def test_a_dead_sitemap_in_robots_txt_leads_to_guesses(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /dead.xml", "/sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    assert record.outcomes == {
        "/dead.xml": "unread http_not_found",
        "/sitemap.xml": "complete",
    }


async def test_a_quick_probe_of_a_site_without_a_sitemap_makes_at_most_ten_requests(
    site, make_analyzer
):
    site.pages["/"] = "<html><link rel=alternate type=application/rss+xml href=/gone.rss></html>"
    names = {"site.example": "127.0.0.1", "www.site.example": "127.0.0.1"}
    analyzer = make_analyzer(*(f"{name}:{site.port}" for name in names), names=names)
    record = await record_scan(
        analyzer, f"http://site.example:{site.port}", ScanOptions(probe="quick")
    )
    assert record.error_code == "no_sitemap"
    assert len(site.requests) == 10
    guesses = [path for path in site.paths if path in guessed_paths()]
    assert guesses == list(guessed_paths()[:6])


async def test_a_quick_probe_finds_what_is_where_most_sites_have_it(site, make_analyzer):
    site.pages |= {"/": "<meta name=generator content='Magento'>", "/pub/sitemap.xml": SITEMAP}
    options = ScanOptions(probe="quick")
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.urls == URLS


def test_guesses_are_canonical_so_that_they_need_no_parsing():
    base = parse_url("https://a.example/")
    for path in guessed_paths(frozenset(Cms)):
        assert base.at(path) == parse_url(path, base.url)


async def test_a_full_probe_asks_for_every_path(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP, "/feed.xml": "<rss/>"}
    options = ScanOptions(probe="full")
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.verdicts["/feed.xml"] == "accepted"
    assert len(record.verdicts) == 1 + len(guessed_paths())


async def test_guesses_keep_to_robots_txt_but_named_sitemaps_are_read(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "User-agent: *\nDisallow: /\nAllow: /sitemap.txt\nSitemap: /dead.xml",
        "/sitemap.xml": SITEMAP,
        "/sitemap.txt": "\n".join(URLS),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert "/dead.xml" in site.paths
    assert "/sitemap.xml" not in site.paths
    assert record.verdicts["/sitemap.xml"] == "skipped robots_disallowed"
    assert record.verdicts["/sitemap.txt"] == "accepted"


@pytest.mark.slow
async def test_more_sitemap_lines_than_are_read_are_a_problem(site, make_analyzer):
    site.pages["/robots.txt"] = "".join(f"Sitemap: /{n}.xml\n" for n in range(10_001))
    site.pages["/0.xml"] = SITEMAP
    record = await record_scan(
        make_analyzer(site.host_port), site.base, ScanOptions(max_documents=1)
    )
    assert record.urls == URLS
    problems = {problem.code for problem in record.all(ProblemSeen)}
    assert problems == {"sitemap_line_limit", "document_limit"}


async def test_a_group_for_another_name_with_stars_does_not_keep_us_out(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "User-agent: *WordPress*\nDisallow: /",
        "/sitemap.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS


async def test_a_sitemap_address_is_asked_for_with_the_bytes_that_robots_txt_has(
    site, make_analyzer
):
    site.pages |= {"/robots.txt": "Sitemap: /é.xml".encode("latin-1"), "/%E9.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert site.paths[:2] == ["/robots.txt", "/%E9.xml"]
    assert record.urls == URLS


async def test_the_given_url_is_tried_first_when_it_is_not_the_home_page(site, make_analyzer):
    site.pages |= {"/deep/map.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), f"{site.base}/deep/map.xml")
    assert record.urls == URLS
    assert site.paths == ["/robots.txt", "/deep/map.xml"]
    assert record.all(CandidateJudged)[0].method is DiscoveryMethod.MANUAL


async def test_a_given_page_that_is_no_sitemap_still_finds_the_sitemap(site, make_analyzer):
    site.pages |= {"/blog": "<html></html>", "/sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), f"{site.base}/blog")
    assert record.urls == URLS
    assert record.verdicts["/blog"] == "rejected html_instead"


async def test_a_page_for_everything_is_known_as_a_soft_404(site, make_analyzer):
    site.otherwise = "<!DOCTYPE html><html></html>"
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "no_sitemap"
    assert set(record.verdicts.values()) == {"rejected soft_404"}


async def test_a_redirect_of_everything_to_one_page_is_known_as_a_soft_404(site, make_analyzer):
    site.pages |= {"/home.txt": "https://a.example/", "/robots.txt": "# nothing"}
    site.otherwise = status(302, Location="/home.txt")
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert set(record.verdicts.values()) == {"rejected soft_404"}
    assert record.error_code == "no_sitemap"
    # The home page and the random path lead there; a guess need not.
    assert site.paths.count("/home.txt") == 2


async def longest_block(work: Awaitable[object]) -> float:
    """The longest time in which the event loop did nothing but this work, as a share of all."""
    ticks = [time.perf_counter()]

    async def tick() -> None:
        while True:
            ticks.append(time.perf_counter())
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    await work
    ticking.cancel()
    ticks.append(time.perf_counter())
    times: list[float] = list(map(sub, ticks[1:], ticks))
    return max(times) / sum(times)


@pytest.mark.slow
async def test_a_long_home_page_does_not_block_the_event_loop(site):
    site.pages["/"] = '<link rel="sitemap" href="/map.xml">' + "<b a=1 b=2>" * 23_000
    policy = EgressPolicy.from_text(site.host_port)
    async with HttpClient(policy, Politeness(0, 2), user_agent="tests") as client:
        reading = asyncio.ensure_future(fetch_home_page(client, parse_site(site.base)))
        measured(await longest_block(reading), 0.5)
    assert reading.result().page_links == ("/map.xml",)


@pytest.mark.slow
async def test_thousands_of_sitemap_lines_do_not_block_the_event_loop():
    async def ignore(_event: object) -> None:
        """Nothing is to be done with events."""

    base = parse_site("https://a.example")
    urls = [f"/{'a/' * 8}{number}.xml" for number in range(5000)]
    crawl = Crawl(base, ScanOptions(max_documents=10_000), NOTHING_KNOWN, ignore)
    work = crawl.add_all(urls, base, DiscoveryMethod.ROBOTS_TXT)
    measured(await longest_block(work), 0.2)
    assert crawl.frontier.documents_left == 5000


@pytest.mark.slow
async def test_a_decompression_bomb_at_a_random_path_does_not_block_the_event_loop(site):
    site.otherwise = gzip.compress(b" " * 32 * 1024 * 1024)
    policy = EgressPolicy.from_text(site.host_port)
    load_readers()
    async with HttpClient(policy, Politeness(0, 2), user_agent="tests") as client:
        measured(await longest_block(probe_random_path(client, parse_site(site.base))), 0.5)


async def test_without_a_scheme_http_is_tried_after_https(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.host_port)
    assert record.urls == URLS
    assert record.all(SiteResolved) == [SiteResolved(site.base)]
    assert [event.http_status for event in record.all(RobotsRead)] == [None, 200]


async def test_a_name_that_is_not_known_is_tried_with_www(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP}
    host = f"www.site.example:{site.port}"
    bare = f"site.example:{site.port}"
    analyzer = make_analyzer(host, bare, names={"www.site.example": "127.0.0.1"})
    record = await record_scan(analyzer, f"http://{bare}")
    assert record.urls == URLS
    assert record.all(SiteResolved) == [SiteResolved(f"http://{host}")]


async def test_a_name_that_does_not_exist_is_reported_as_such(make_analyzer):
    record = await record_scan(make_analyzer(), "nowhere.example.com")
    assert record.error_code == "dns_name_unknown"
    assert [event.url for event in record.all(RobotsRead)] == [
        "https://nowhere.example.com/robots.txt",
        "https://www.nowhere.example.com/robots.txt",
        "http://www.nowhere.example.com/robots.txt",
    ]


@pytest.mark.parametrize("code", [401, 403, 404, 410])
async def test_robots_txt_that_is_refused_or_missing_sets_no_rules(site, make_analyzer, code):
    site.pages |= {"/robots.txt": status(code), "/sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS


async def test_the_text_of_robots_txt_is_reported_as_it_can_be_stored(site, make_analyzer):
    site.pages |= {"/robots.txt": b"# \xff\x00\nSitemap: /s.xml", "/s.xml": urlset_of([])}
    robots = (await record_scan(make_analyzer(site.host_port), site.base)).all(RobotsRead)[0]
    assert (robots.text, robots.truncated) == ("# \ufffd\ufffd\nSitemap: /s.xml", False)


async def test_of_a_long_robots_txt_the_whole_lines_within_the_limit_are_reported(
    site, make_analyzer
):
    line = b"# " + b"x" * 1021 + b"\n"
    site.pages |= {"/robots.txt": b"Sitemap: /s.xml\n" + 600 * line, "/s.xml": urlset_of([])}
    robots = (await record_scan(make_analyzer(site.host_port), site.base)).all(RobotsRead)[0]
    assert robots.truncated
    assert robots.text == "Sitemap: /s.xml\n" + 499 * line.decode()


async def test_without_a_robots_txt_there_is_no_text(site, make_analyzer):
    site.pages["/sitemap.xml"] = urlset_of([])
    robots = (await record_scan(make_analyzer(site.host_port), site.base)).all(RobotsRead)[0]
    assert (robots.http_status, robots.text) == (404, None)


@pytest.mark.parametrize(
    "robots", [status(500), status(503, cf_mitigated="challenge")], ids=["error", "challenge"]
)
async def test_robots_txt_with_a_server_error_stops_the_scan(site, make_analyzer, robots):
    site.pages |= {"/robots.txt": robots, "/sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "robots_unreachable"
    assert site.paths == ["/robots.txt"]
    assert [event.error_code for event in record.all(RobotsRead)] == ["robots_unreachable"]


async def test_the_operator_may_proceed_without_robots_txt(site, make_analyzer):
    site.pages |= {"/robots.txt": status(500), "/sitemap.xml": SITEMAP}
    options = ScanOptions(robots_unreachable="proceed")
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.urls == URLS


@pytest.mark.parametrize("headers", [{}, {"cf_mitigated": "challenge"}], ids=["", "challenge"])
@pytest.mark.parametrize("code", [429, 503])
async def test_a_site_that_asks_us_to_wait_is_left_alone(site, make_analyzer, code, headers):
    site.pages |= {"/robots.txt": status(code, Retry_After="120", **headers)}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "rate_limited"
    assert getattr(record.error, "retry_after", None) == 120


async def test_a_first_document_that_asks_us_to_wait_ends_the_scan(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: /s.xml",
        "/s.xml": status(429, Retry_After="60"),
        "/sitemap.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "rate_limited"
    assert "/sitemap.xml" not in site.paths


@pytest.mark.parametrize(
    ("pages", "code"),
    [
        ({}, "no_sitemap"),
        ({"/robots.txt": "Sitemap: /s.xml"}, "no_sitemap"),
        ({"/robots.txt": "Sitemap: /s.xml", "/s.xml": "<html></html>"}, "html_instead"),
        ({"/robots.txt": "Sitemap: /s.xml", "/s.xml": b"\x00\x01"}, "not_a_sitemap"),
        ({"/robots.txt": "Sitemap: /s.xml", "/s.xml": status(403)}, "blocked"),
        ({"/robots.txt": "Sitemap: /s.xml", "/s.xml": status(500)}, "server_error"),
        ({"/robots.txt": "Sitemap: /s.xml", "/s.xml": "<urlset><url>"}, "truncated"),
        ({path: status(403) for path in USUAL_PATHS}, "blocked"),
        ({"/xmlsitemap.php": status(500)}, "no_sitemap"),
    ],
)
async def test_nothing_found_is_a_failure_with_the_true_reason(site, make_analyzer, pages, code):
    site.pages |= pages
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert (record.error_code, record.urls) == (code, [])


async def test_a_site_that_does_not_answer_is_a_failed_connection(site, make_analyzer):
    analyzer, base = make_analyzer(site.host_port), site.base
    await site.stop()
    record = await record_scan(analyzer, base)
    assert record.error_code == "connection_failed"


async def test_a_forbidden_address_is_refused_as_such(site, make_analyzer):
    record = await record_scan(make_analyzer(), site.base)
    assert record.error_code == "egress_denied"
    assert site.requests == []


async def test_an_address_in_robots_txt_that_is_none_is_rejected(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: ftp://a.example/s.xml\nSitemap: /s.xml",
        "/s.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    first = record.all(CandidateJudged)[0]
    assert (first.url, first.reason) == ("ftp://a.example/s.xml", "address_scheme")
    assert record.urls == URLS
