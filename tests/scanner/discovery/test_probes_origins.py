"""Which origin answers for a site: TLS is never given up silently, `www.` is tried both ways."""

from __future__ import annotations

import pytest
from aiohttp import web

from siteatlas.errors import (
    ConnectionFailed,
    DnsNameUnknown,
    Timeout,
    TlsError,
    TlsNotSpoken,
)
from siteatlas.net.address import parse_site
from siteatlas.scanner.discovery.probes import candidate_origins, is_worth_trying, other_host
from siteatlas.scanner.events import RobotsRead, SiteResolved
from tests.fixtures.certificates import presenting, trusting
from tests.fixtures.documents import urlset_of
from tests.fixtures.raw_server import Connection, PathServer, RawServer, whole_answer
from tests.fixtures.scans import record_scan

URLS = ["https://a.example/1"]
WWW = ["https://www.example.com", "http://www.example.com"]
SITEMAP = urlset_of(URLS)
PAGES = {"/robots.txt": whole_answer(b"Sitemap: /s.xml"), "/s.xml": whole_answer(SITEMAP)}
NAMES = {"site-a.test": "127.0.0.1", "www.site-a.test": "127.0.0.1"}


@pytest.mark.parametrize(
    ("typed", "errors", "asked"),
    [
        ("example.com", [TlsError()], ["https://www.example.com"]),
        ("example.com", [TlsNotSpoken()], ["http://example.com", *WWW]),
        ("example.com", [ConnectionFailed()], ["http://example.com", *WWW]),
        ("example.com", [Timeout()], ["http://example.com"]),
        ("example.com", [DnsNameUnknown()], WWW),
        ("https://example.com", [TlsError()], ["https://www.example.com"]),
        ("https://example.com", [TlsNotSpoken()], ["https://www.example.com"]),
        ("https://example.com", [Timeout()], []),
    ],
)
def test_what_is_asked_after_a_failure(typed, errors, asked):
    site = parse_site(typed)
    _, *others = candidate_origins(site)
    worth = [origin.origin for origin in others if is_worth_trying(origin, site, errors)]
    assert worth == asked


@pytest.mark.parametrize(
    ("host", "other"),
    [
        ("example.com", "www.example.com"),
        ("www.example.com", "example.com"),
        ("www.com", "www.www.com"),
        ("localhost", None),
        ("127.0.0.1", None),
        ("2606:4700::1", None),
    ],
)
def test_the_other_host_of_a_site(host, other):
    assert other_host(host) == other


async def test_a_certificate_that_is_not_trusted_ends_the_scan_without_asking_http(make_analyzer):
    async with PathServer(dict(PAGES), tls=presenting("expired")) as server:
        entries = [f"{name}:{server.port}" for name in NAMES]
        analyzer = make_analyzer(*entries, names=NAMES, tls=trusting())
        record = await record_scan(analyzer, f"site-a.test:{server.port}")
    assert record.error_code == "tls_error"
    assert {event.url.split(":")[0] for event in record.all(RobotsRead)} == {"https"}
    assert server.requests == []


async def test_a_port_that_speaks_no_tls_is_asked_in_plain_when_no_scheme_was_typed(
    site, make_analyzer
):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.host_port)
    assert record.urls == URLS
    assert [event.error_code for event in record.all(RobotsRead)] == ["tls_not_spoken", None]


async def test_a_port_that_speaks_no_tls_is_an_error_when_https_was_typed(site, make_analyzer):
    record = await record_scan(make_analyzer(site.host_port), f"https://{site.host_port}")
    assert record.error_code == "tls_not_spoken"


async def test_a_handshake_that_is_reset_leads_to_http_when_no_scheme_was_typed(make_analyzer):
    async def no_tls(connection: Connection) -> None:
        first = await connection.reader.read(1)
        if first != b"G":
            connection.reset()
            return
        request = (first + await connection.reader.readuntil(b"\r\n\r\n")).decode()
        await connection.send(PAGES.get(request.split(" ")[1], b""))

    async with RawServer(no_tls) as server:
        record = await record_scan(make_analyzer(server.entry), server.entry)
    assert record.urls == URLS


async def test_a_trusted_certificate_is_used(make_analyzer):
    async with PathServer(dict(PAGES), tls=presenting("site-a")) as server:
        entry = f"site-a.test:{server.port}"
        record = await record_scan(make_analyzer(entry, names=NAMES, tls=trusting()), entry)
    assert record.urls == URLS
    assert record.all(SiteResolved) == [SiteResolved(f"https://{entry}")]


def by_host(pages_of_host):
    def answer(request: web.BaseRequest) -> web.StreamResponse:
        page = pages_of_host.get(request.host.partition(":")[0], {}).get(request.path)
        return page or web.Response(status=404)

    return answer


@pytest.mark.parametrize(("asked", "has_it"), [("", "www."), ("www.", "")])
async def test_the_other_host_is_looked_at_when_this_one_has_no_sitemap(
    site, make_analyzer, asked, has_it
):
    site.otherwise = by_host(
        {f"{has_it}site.example": {"/sitemap.xml": web.Response(body=SITEMAP)}}
    )
    names = {"site.example": "127.0.0.1", "www.site.example": "127.0.0.1"}
    analyzer = make_analyzer(*(f"{name}:{site.port}" for name in names), names=names)
    record = await record_scan(analyzer, f"http://{asked}site.example:{site.port}")
    assert record.urls == URLS
    origins = [event.origin for event in record.all(SiteResolved)]
    assert origins == [
        f"http://{asked}site.example:{site.port}",
        f"http://{has_it}site.example:{site.port}",
    ]


async def test_another_host_that_only_leads_back_costs_one_request(site, make_analyzer):
    def answer(request: web.BaseRequest) -> web.Response:
        if request.host.startswith("www."):
            target = f"http://site.example:{site.port}{request.path}"
            return web.Response(status=301, headers={"Location": target})
        return web.Response(status=404)

    site.otherwise = answer
    names = {"site.example": "127.0.0.1", "www.site.example": "127.0.0.1"}
    analyzer = make_analyzer(*(f"{name}:{site.port}" for name in names), names=names)
    record = await record_scan(analyzer, f"http://site.example:{site.port}")
    assert record.error_code == "no_sitemap"
    assert [r.path for r in site.requests if r.host.startswith("www.")] == ["/robots.txt"]


async def test_both_hosts_together_get_at_most_sixty_guesses(site, make_analyzer):
    names = {"site.example": "127.0.0.1", "www.site.example": "127.0.0.1"}
    analyzer = make_analyzer(*(f"{name}:{site.port}" for name in names), names=names)
    record = await record_scan(analyzer, f"http://site.example:{site.port}")
    assert record.error_code == "no_sitemap"
    assert len(record.verdicts) < 60
    guesses = [r for r in site.requests if r.path not in {"/", "/robots.txt"}]
    assert len(guesses) == 60 + 2
