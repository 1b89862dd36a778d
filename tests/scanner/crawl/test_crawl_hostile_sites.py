"""Servers made to do harm or made without care, by the rows of the safety table."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from aiohttp import web

from siteatlas.scanner.analyzer import ScanOptions
from siteatlas.scanner.events import DocumentClosed, ProblemSeen, RobotsRead
from siteatlas.scanner.reading.document import DocumentReader
from tests.fixtures.documents import index_of, urlset, urlset_of
from tests.fixtures.raw_server import Connection, PathServer, RawServer, redirect, whole_answer
from tests.fixtures.scans import ScanRecord, record_scan
from tests.fixtures.timings import measured
from tests.scanner.conftest import QUICK

URLS = [f"https://a.example/{number}" for number in range(3)]
SITEMAP = urlset_of(URLS)
ROBOTS = whole_answer(b"Sitemap: /s.xml\nSitemap: /good.xml")
GOOD = "https://a.example/good"
STRICT = replace(QUICK, first_byte=0.6, idle=0.6, document=2.0, max_bytes=400_000, speed_window=0.5)


async def scan_raw(make_analyzer, answer, limits=STRICT) -> ScanRecord:
    """Scan a site whose /s.xml is answered by `answer` and whose /good.xml is fine."""

    async def serve(connection: Connection) -> None:
        while (request := await connection.request()) is not None:
            path = request.split(" ", 2)[1]
            if path == "/s.xml":
                await answer(connection)
                return
            fixed = {"/robots.txt": ROBOTS, "/good.xml": whole_answer(urlset_of([GOOD]))}
            await connection.send(fixed.get(path, whole_answer(status="404 Not Found")))

    async with RawServer(serve) as server:
        return await record_scan(make_analyzer(server.entry, limits=limits), server.url())


def sending(data: bytes, *, then: str = "close"):
    async def answer(connection: Connection) -> None:
        await connection.send(data)
        if then == "wait":
            await asyncio.sleep(30)

    return answer


async def drip(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\n\r\n<urlset>")
    while True:
        await connection.send(b" ")
        await asyncio.sleep(0.05)


async def slow_headers(connection: Connection) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1000:
        await connection.send(bytes([byte]))
        await asyncio.sleep(0.05)


async def endless_chunks(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await connection.send(b"8\r\n<urlset>\r\n")
    entry = b"<url><loc>https://a.example/x</loc></url>" * 50
    while True:
        await connection.send(f"{len(entry):x}\r\n".encode() + entry + b"\r\n")


def flood_of(status: str):
    async def answer(connection: Connection) -> None:
        while True:
            await connection.send(f"HTTP/1.1 {status}\r\n\r\n".encode() * 10)
            await asyncio.sleep(0.001)

    return answer


def headers(*lines: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode()


CUT = SITEMAP[:-20]
SLEEPERS = {"H1": pytest.mark.slow, "H2-slow": pytest.mark.slow}
ANSWERS = {
    "H1": (drip, "too_slow"),
    "H2-slow": (slow_headers, "timeout"),
    "H2-many": (sending(headers(*(f"X-{n}: y" for n in range(5000)))), "http_protocol"),
    "H2-long": (sending(headers("X-Long: " + "y" * 100_000)), "http_protocol"),
    "H3": (endless_chunks, "too_large"),
    "H4": (sending(headers("Content-Length: 99999") + SITEMAP), "truncated"),
    "H5": (sending(headers() + CUT), "truncated"),
    "H7-both": (
        sending(headers("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n"),
        "http_protocol",
    ),
    "H7-negative": (sending(headers("Content-Length: -5") + b"x"), "http_protocol"),
    "H7-doubled": (
        sending(headers("Content-Length: 5", "Content-Length: 6") + b"xxxxxx"),
        "http_protocol",
    ),
    "H8-continue": (flood_of("100 Continue"), "http_protocol"),
    "H8-hints": (flood_of("103 Early Hints"), "http_protocol"),
    "H9": (sending(whole_answer(b"<html><title>Error 500</title></html>")), "html_instead"),
    "H13-304": (sending(whole_answer(status="304 Not Modified")), "http_protocol"),
    "H13-206": (sending(whole_answer(SITEMAP, status="206 Partial")), "http_protocol"),
    "X22-204": (sending(b"HTTP/1.1 204 No Content\r\n\r\n"), "empty"),
    "G12": (
        sending(whole_answer(SITEMAP, headers=("Content-Encoding: br", "Connection: close"))),
        "encoding_unsupported",
    ),
    "G3-headers": (
        sending(whole_answer(SITEMAP, headers=("Content-Encoding: gzip, gzip, gzip",))),
        "encoding_chain",
    ),
}
STATUSES = {401: "blocked", 403: "blocked", 404: "http_not_found", 410: "http_not_found"}
STATUSES |= {451: "blocked", 500: "server_error", 502: "server_error", 504: "server_error"}
ANSWERS |= {
    f"H10-{status}": (sending(whole_answer(status=f"{status} No")), code)
    for status, code in STATUSES.items()
}


@pytest.mark.parametrize(
    ("answer", "code"),
    [pytest.param(*row, id=name, marks=SLEEPERS.get(name, ())) for name, row in ANSWERS.items()],
)
async def test_a_hostile_answer_ends_its_document_and_not_the_scan(make_analyzer, answer, code):
    started = time.monotonic()
    record = await scan_raw(make_analyzer, answer)
    closed = {event.requested_url.rpartition("/")[2]: event for event in record.all(DocumentClosed)}
    assert (closed["s.xml"].error_code, record.error) == (code, None)
    assert GOOD in record.urls
    measured(time.monotonic() - started, 5)


@pytest.mark.parametrize(
    ("name", "kept"), [("H3", "https://a.example/x"), ("H4", URLS[0]), ("H5", URLS[1])]
)
async def test_what_was_complete_before_the_end_is_kept(make_analyzer, name, kept):
    record = await scan_raw(make_analyzer, ANSWERS[name][0])
    assert kept in record.urls
    assert "cut" in {event.outcome.value for event in record.all(DocumentClosed)}


async def test_row_h12_a_passing_fault_is_tried_three_times(make_analyzer):
    tries = 0

    async def at_last(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            connection.reset()
        else:
            status = "200 OK" if tries == 3 else "502 Bad Gateway"
            await connection.answer(SITEMAP, status=status)

    record = await scan_raw(make_analyzer, at_last, replace(STRICT, tries=3))
    assert set(URLS) < set(record.urls)
    assert tries == 3


async def test_row_t1_each_document_is_read_once(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: /a.xml\nSitemap: /a.xml#x\nSitemap: /x/../a.xml",
        "/a.xml": index_of(["{base}/a.xml", "{base}/b.xml"]).decode(),
        "/b.xml": index_of(["{base}/a.xml", "{base}/c.xml"]).decode(),
        "/c.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    assert sorted(site.paths) == ["/a.xml", "/b.xml", "/c.xml", "/robots.txt"]


async def test_row_t4_the_same_content_under_many_names_is_marked(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: /i.xml",
        "/i.xml": index_of("{base}/s.xml?" + str(n) for n in range(5)).decode(),
        "/s.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    marked = [event.problems.get("duplicate_content", 0) for event in record.all(DocumentClosed)]
    assert sum(marked) == 4


@pytest.mark.parametrize(
    ("child", "robots", "told"),
    [
        ("https://other.example.com/s.xml", "", "skipped cross_host"),
        ("https://example/s.xml", "", "skipped egress_denied"),
        ("https://other.example.com/s.xml", "Sitemap: https://other.example.com/x.xml", "asked"),
        ("https://cdn.site.example/s.xml", "", "asked"),
    ],
)
async def test_row_t5_an_index_leads_abroad_only_where_the_site_itself_points(
    site, make_analyzer, child, robots, told
):
    site.pages |= {"/robots.txt": f"Sitemap: /i.xml\n{robots}", "/i.xml": index_of([child])}
    entry = f"site.example:{site.port}"
    analyzer = make_analyzer(entry, names={"site.example": "127.0.0.1"})
    record = await record_scan(analyzer, f"http://{entry}")
    closed = {event.url: event.error_code for event in record.all(DocumentClosed)}
    refused = "egress_denied" if told == "skipped egress_denied" else None
    assert closed.get(child) == ("dns_name_unknown" if told == "asked" else refused)
    assert record.verdicts.get("/s.xml") == (None if told == "asked" else told)


@pytest.mark.slow
async def test_row_147_an_index_is_no_cannon(site, make_analyzer):
    victims = [f"https://victim.example.com/{number}.xml" for number in range(50_000)]
    site.pages |= {
        "/robots.txt": "Sitemap: /i.xml\nSitemap: /good.xml",
        "/i.xml": index_of(victims),
        "/good.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    skipped = [verdict for verdict in record.verdicts.values() if verdict == "skipped cross_host"]
    assert len(skipped) == 100
    assert record.outcomes == {"/i.xml": "complete", "/good.xml": "complete"}


async def test_row_147_even_a_host_that_robots_txt_names_gets_twenty_requests(site, make_analyzer):
    victims = [f"https://victim.example.com/{number}.xml" for number in range(60)]
    lines = "\n".join(f"Sitemap: {url}" for url in victims)
    site.pages |= {"/robots.txt": lines + "\nSitemap: /good.xml", "/good.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    capped = [verdict for verdict in record.verdicts.values() if "cross_host_cap" in verdict]
    assert len(capped) == 40
    assert [problem.code for problem in record.all(ProblemSeen)] == ["cross_host_cap"]


async def test_row_147_redirects_to_a_foreign_host_count_like_documents(make_analyzer):
    async with PathServer({}, host="127.0.0.2") as victim:
        lines = "".join(f"Sitemap: /{number}.xml\n" for number in range(60))
        pages = {f"/{number}.xml": redirect(victim.url(f"/{number}")) for number in range(60)}
        robots = whole_answer(f"{lines}Sitemap: /good.xml".encode())
        good = whole_answer(SITEMAP)
        async with PathServer({**pages, "/robots.txt": robots, "/good.xml": good}) as server:
            record = await record_scan(make_analyzer("127.0.0.0/8:*"), server.url())
    assert record.urls == URLS
    assert len(victim.requests) == 20
    closed = [event.error_code for event in record.all(DocumentClosed)]
    assert closed.count("foreign_host_limit") == 40
    assert [problem.code for problem in record.all(ProblemSeen)] == ["cross_host_cap"]


@pytest.mark.parametrize(
    ("announced", "outcome"), [(400_001, "cut"), (800_000, "cut"), (800_001, "unread")]
)
async def test_an_absurd_length_is_refused_before_the_body_is_read(
    make_analyzer, announced: int, outcome: str
):
    body = urlset_of(f"https://a.example/{number}" for number in range(20_000))
    answer = sending(headers(f"Content-Length: {announced}") + body.ljust(900_000))
    record = await scan_raw(make_analyzer, answer)
    closed = {event.requested_url.rpartition("/")[2]: event for event in record.all(DocumentClosed)}
    assert (closed["s.xml"].outcome, closed["s.xml"].error_code) == (outcome, "too_large")


async def test_rows_t7_t8_u7_misplaced_pages_are_stored_and_counted(site, make_analyzer):
    pages = [f"{site.base}/a/1", f"{site.base}/2", "https://c.example/3", "http://localhost/4"]
    pages += ["http://10.0.0.1/5", "http://[fe80::1]/6"]
    site.pages |= {"/robots.txt": "Sitemap: /a/s.xml", "/a/s.xml": urlset_of(pages)}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == pages
    closed = record.all(DocumentClosed)[0]
    assert closed.problems == {"off_host": 1, "private_host": 3}
    assert [sample.url for sample in closed.samples["off_host"]] == ["https://c.example/3"]
    assert [sample.url for sample in closed.samples["private_host"]] == pages[3:]
    assert site.paths == ["/robots.txt", "/a/s.xml"]


@pytest.mark.parametrize(("named", "noted"), [(True, {}), (False, {"scope": 1})])
async def test_a_page_outside_of_the_directory_is_noted_unless_robots_txt_vouches_for_its_index(
    site, make_analyzer, named, noted
):
    pages = [f"{site.base}/a/1", f"{site.base}/2"]
    site.pages |= {
        "/robots.txt": "Sitemap: /sitemap.xml" if named else "",
        "/sitemap.xml": index_of([f"{site.base}/a/s.xml"]),
        "/a/s.xml": urlset_of(pages),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    closed = {event.url.rpartition("/")[2]: event for event in record.all(DocumentClosed)}["s.xml"]
    assert closed.problems == noted
    shown = [sample.url for sample in closed.samples.get("scope", ())]
    assert shown == [pages[1]] * len(noted)


@pytest.mark.parametrize(
    ("robots", "code"),
    [
        pytest.param(b"#" * 600 * 1024 + b"\nSitemap: /late.xml", "robots_truncated", id="600-kib"),
        pytest.param(b"# x\n" * 1_000_000, "robots_truncated", id="4-mb"),
    ],
)
async def test_row_b1_a_huge_robots_txt_is_cut(site, make_analyzer, robots, code):
    site.pages |= {"/robots.txt": b"Sitemap: /s.xml\n" + robots, "/s.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    assert [problem.code for problem in record.all(ProblemSeen)] == [code]


async def test_row_b1_an_endless_robots_txt_is_cut(make_analyzer):
    async def serve(connection: Connection) -> None:
        while (request := await connection.request()) is not None:
            if "/robots.txt" not in request:
                await connection.send(whole_answer(SITEMAP))
                continue
            await connection.send(b"HTTP/1.1 200 OK\r\n\r\nSitemap: /s.xml\n")
            while True:
                await connection.send(b"# and so on\n" * 1000)

    async with RawServer(serve) as server:
        record = await record_scan(make_analyzer(server.entry), server.url())
    assert record.urls == URLS


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(headers("Content-Length: 9999") + b"Sitemap: /s.xml\n", id="B3-cut"),
        pytest.param(whole_answer(status="500 Oops"), id="B3-500"),
        pytest.param(headers("Content-Encoding: gzip") + b"\x1f\x8b\x08\x00junk", id="B3-gzip"),
    ],
)
async def test_row_b3_a_robots_txt_that_breaks_off_is_unreachable(make_analyzer, answer):
    async def serve(connection: Connection) -> None:
        await connection.request()
        await connection.send(answer)

    async with RawServer(serve) as server:
        record = await record_scan(make_analyzer(server.entry), server.url())
    assert record.error_code == "robots_unreachable"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451])
async def test_row_b2_without_robots_txt_there_are_no_rules(site, make_analyzer, status):
    site.pages |= {
        "/robots.txt": lambda _: web.Response(status=status),
        "/sitemap.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS


@pytest.mark.parametrize(
    ("robots", "sitemaps"),
    [
        pytest.param(b"<html><body>Sitemap: no</body></html>", 0, id="html"),
        pytest.param(b"\xef\xbb\xbfSitemap: /s.xml", 1, id="mark"),
        pytest.param("Sitemap: /s.xml".encode("utf-16"), 1, id="utf-16"),
        pytest.param(b"Site\x00map: /s.xml\x00", 1, id="nul"),
        pytest.param(b"User-agent: *\rDisallow:\rSitemap: /s.xml\r", 1, id="carriage returns"),
        pytest.param(
            b"".join(b"Sitemap: /%d\n" % n for n in range(25_000)),
            10_000,
            id="many",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_row_b4_robots_txt_is_read_leniently(site, make_analyzer, robots, sitemaps):
    site.pages |= {"/robots.txt": robots, "/s.xml": SITEMAP, "/sitemap.xml": SITEMAP}
    site.pages |= {"/0": SITEMAP}
    options = ScanOptions(max_documents=100)
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert len(record.all(RobotsRead)[0].sitemap_urls) == sitemaps
    assert record.error is None


async def test_row_b5_a_named_sitemap_is_read_though_it_is_disallowed(site, make_analyzer):
    robots = "User-agent: *\nDisallow: /sitemap.xml\nSitemap: /sitemap.xml"
    site.pages |= {"/robots.txt": robots, "/sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS


async def test_a_bug_of_ours_ends_one_document_and_not_the_scan(site, make_analyzer, monkeypatch):
    def stumble(reader: DocumentReader, chunk: bytes):
        if b"stumble" in chunk:
            raise ZeroDivisionError
        yield from original(reader, chunk)

    original = DocumentReader.feed
    monkeypatch.setattr(DocumentReader, "feed", stumble)
    site.pages |= {
        "/robots.txt": "Sitemap: /bad.xml\nSitemap: /s.xml",
        "/bad.xml": urlset("<!-- stumble -->"),
        "/s.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.outcomes == {"/bad.xml": "unread internal_error", "/s.xml": "complete"}
    assert record.urls == URLS
