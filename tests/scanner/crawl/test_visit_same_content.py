"""A second scan recognizes a document by its bytes, and reports what reading it would prove."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from aiohttp import web

from siteatlas.net.address import parse_site
from siteatlas.scanner.analyzer import ScanOptions
from siteatlas.scanner.crawl.body import held_bytes
from siteatlas.scanner.events import (
    ChildLink,
    ChildrenFound,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    EntriesRead,
    ProblemSeen,
    SitemapType,
    UnchangedBy,
    Validators,
)
from siteatlas.scanner.options import KnownDocument
from tests.fixtures.documents import index_of, urlset, urlset_of
from tests.fixtures.raw_server import RawServer, whole_answer
from tests.fixtures.scans import record_scan
from tests.fixtures.waiting import wait_until

ROBOTS = "Sitemap: /s.xml"
PAGES = [f"https://a.example/{number}" for number in range(3)]
OTHER = [f"https://b.example/{number}" for number in range(3)]
NEWS = "<news:news><news:title>t</news:title></news:news>"
NEWS_SPACE = 'xmlns:news="http://www.google.com/schemas/sitemap-news/0.9"'


def known(closed: DocumentClosed, **more) -> KnownDocument:
    """What a caller would remember of a complete read."""
    return KnownDocument(
        closed.url, content_hash=closed.content_hash, content_length=closed.wire_bytes, **more
    )


async def scan(site, make_analyzer, *documents: KnownDocument, **options):
    memory = {document.url: document for document in documents}
    return await record_scan(make_analyzer(site.host_port), site.base, memory=memory, **options)


async def read_once(site, make_analyzer):
    return (await scan(site, make_analyzer)).all(DocumentClosed)[0]


def chunked(content: bytes):
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(content)
        return response

    return answer


@pytest.mark.parametrize("wrap", [bytes, gzip.compress, chunked], ids=["plain", "gzip", "chunked"])
async def test_the_same_bytes_are_not_read_again(site, make_analyzer, wrap):
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": wrap(urlset_of(PAGES))}
    first = await read_once(site, make_analyzer)
    record = await scan(site, make_analyzer, known(first, type=SitemapType.STANDARD))
    closed = record.all(DocumentClosed)[0]
    assert (closed.outcome, closed.unchanged_by) == ("unchanged", UnchangedBy.CONTENT_HASH)
    assert record.all(DocumentOpened) == record.all(EntriesRead) == []
    assert record.verdicts == {"/s.xml": "accepted unchanged"}
    assert (closed.content_hash, closed.type) == (first.content_hash, SitemapType.STANDARD)
    assert (closed.http_status, closed.wire_bytes) == (200, first.wire_bytes)


async def test_the_same_content_compressed_again_is_not_read_again(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": gzip.compress(urlset_of(PAGES), mtime=1)}
    first = await read_once(site, make_analyzer)
    site.pages["/s.xml"] = gzip.compress(urlset_of(PAGES), mtime=2)
    record = await scan(site, make_analyzer, known(first))
    assert record.outcomes == {"/s.xml": "unchanged"}


@pytest.mark.parametrize("wrap", [bytes, gzip.compress, chunked], ids=["plain", "gzip", "chunked"])
async def test_other_content_of_the_same_length_is_read(site, make_analyzer, wrap):
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": wrap(urlset_of(PAGES))}
    first = await read_once(site, make_analyzer)
    site.pages["/s.xml"] = wrap(urlset_of(OTHER))
    record = await scan(site, make_analyzer, known(first))
    assert record.outcomes == {"/s.xml": "complete"}
    assert record.urls == OTHER
    assert record.all(DocumentClosed)[0].content_hash != first.content_hash


async def test_another_character_set_is_read_again(site, make_analyzer):
    body = urlset_of(["https://a.example/\u00fc"]).replace(b' encoding="UTF-8"', b"")
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": body}
    first = await read_once(site, make_analyzer)
    site.pages["/s.xml"] = lambda _: web.Response(
        body=body, content_type="text/xml", charset="iso-8859-15"
    )
    assert (await scan(site, make_analyzer, known(first))).outcomes == {"/s.xml": "complete"}


async def test_another_announced_length_is_read_while_it_arrives(site, make_analyzer):
    some_entries_came = asyncio.Event()
    body = urlset_of(f"https://a.example/{n}" for n in range(5000))
    head, tail = body[:-1000], body[-1000:]

    async def slow_end(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(head)
        await asyncio.wait_for(some_entries_came.wait(), 5)
        await response.write(tail)
        return response

    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": slow_end}
    url = f"{site.base}/s.xml"
    document = KnownDocument(url, content_hash="ab-cd", content_length=len(head))
    outcomes = []
    async for event in make_analyzer(site.host_port).scan(
        parse_site(site.base), memory={url: document}
    ):
        if isinstance(event, EntriesRead):
            some_entries_came.set()
        elif isinstance(event, DocumentClosed):
            outcomes.append(event.outcome)
    assert outcomes == [DocumentOutcome.COMPLETE]


async def test_an_index_with_the_same_bytes_yields_the_known_children(site, make_analyzer):
    site.pages |= {
        "/robots.txt": ROBOTS,
        "/s.xml": index_of([f"{site.base}/a.xml"]),
        "/a.xml": urlset_of(PAGES),
    }
    first = await scan(site, make_analyzer)
    index = next(one for one in first.all(DocumentClosed) if one.type is SitemapType.INDEX)
    children = (ChildLink(f"{site.base}/a.xml"),)
    record = await scan(site, make_analyzer, known(index, children=children))
    assert record.outcomes == {"/s.xml": "unchanged", "/a.xml": "complete"}
    assert record.all(ChildrenFound) == [ChildrenFound(index.url, children)]


async def test_what_came_of_a_held_body_before_it_broke_off_is_kept(make_analyzer):
    body = urlset_of(f"https://a.example/{n}" for n in range(2000))

    async def cut_off(connection):
        while (request := await connection.request()) is not None:
            if "robots.txt" in request:
                await connection.answer(ROBOTS.encode())
            else:
                await connection.send(whole_answer(body)[:-1000])
                return

    async with RawServer(cut_off) as server:
        url = server.url("/s.xml")
        document = KnownDocument(url, content_hash="ab-cd", content_length=len(body))
        record = await record_scan(
            make_analyzer(server.entry), server.url(""), memory={url: document}
        )
    assert record.outcomes == {"/s.xml": "cut truncated"}
    assert len(record.urls) > 1900


async def test_a_scan_that_ends_while_it_holds_a_body_leaves_nothing(site, make_analyzer):
    body, sent = urlset_of(PAGES), asyncio.Event()

    async def stalling(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(body[:-1])
        sent.set()
        await asyncio.sleep(5)
        return response

    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": stalling}
    url = f"{site.base}/s.xml"
    document = KnownDocument(url, content_hash="ab-cd", content_length=len(body))
    scanning = asyncio.create_task(scan(site, make_analyzer, document))
    await sent.wait()
    await wait_until(lambda: held_bytes().memory > 0)
    scanning.cancel()
    await asyncio.wait([scanning])
    await wait_until(lambda: held_bytes().memory == 0)
    assert (scanning.cancelled(), held_bytes().memory) == (True, 0)


async def test_a_document_that_moved_is_read_again(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": urlset_of(PAGES)}
    first = await read_once(site, make_analyzer)
    site.pages |= {
        "/s.xml": lambda _: web.Response(status=301, headers={"Location": "/new.xml"}),
        "/new.xml": urlset_of(PAGES),
    }
    record = await scan(site, make_analyzer, known(first))
    assert record.outcomes == {"/new.xml": "complete"}
    assert record.all(DocumentClosed)[0].requested_url == first.url


async def test_a_document_that_no_longer_redirects_is_read_again(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": urlset_of(PAGES)}
    first = await read_once(site, make_analyzer)
    document = known(first)._replace(url=f"{site.base}/former.xml")
    memory = {first.url: document}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.outcomes == {"/s.xml": "complete"}


async def test_an_unchanged_document_counts_towards_the_url_limit(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: /s.xml\nSitemap: /t.xml",
        "/s.xml": urlset_of(PAGES),
        "/t.xml": urlset_of(OTHER),
    }
    options = ScanOptions(max_urls=4, documents_in_flight=1)
    first = (await scan(site, make_analyzer)).all(DocumentClosed)[0]
    record = await scan(site, make_analyzer, known(first, entry_count=3), options=options)
    assert record.outcomes == {"/s.xml": "unchanged", "/t.xml": "cut url_limit"}
    assert record.urls == OTHER[:1]


async def test_a_scan_that_exceeds_its_limit_by_an_unchanged_document_says_so(site, make_analyzer):
    asked, read = asyncio.Event(), asyncio.Event()

    async def not_modified(_request: web.BaseRequest) -> web.Response:
        asked.set()
        await read.wait()
        return web.Response(status=304)

    async def wait_for_the_other(_request: web.BaseRequest) -> web.Response:
        await asked.wait()
        asyncio.get_running_loop().call_later(0.1, read.set)
        return web.Response(body=urlset_of(OTHER))

    site.pages |= {"/robots.txt": "Sitemap: /s.xml\nSitemap: /t.xml", "/s.xml": urlset_of(PAGES)}
    first = (await scan(site, make_analyzer)).all(DocumentClosed)[0]
    site.pages |= {"/s.xml": not_modified, "/t.xml": wait_for_the_other}
    document = known(first, entry_count=3, validators=Validators('"v1"'), may_send_validators=True)
    record = await scan(site, make_analyzer, document, options=ScanOptions(max_urls=4))
    assert record.outcomes == {"/s.xml": "unchanged", "/t.xml": "complete"}
    assert [problem.code for problem in record.all(ProblemSeen)] == ["url_limit"]


@pytest.mark.parametrize(
    ("before", "after", "lied"),
    [
        (Validators('"v1"'), Validators('"v1"'), True),
        (Validators('"v1"', "Monday"), Validators('"v2"', "Monday"), False),
        (Validators(None, "Monday"), Validators(None, "Monday"), True),
        (Validators(None, "Monday"), Validators(None, "Tuesday"), False),
        (Validators(), Validators(), False),
        (Validators(), Validators('"v1"'), False),
    ],
    ids=str,
)
async def test_the_same_validators_with_other_content_lied(
    site, make_analyzer, before, after, lied
):
    names = ("ETag", "Last-Modified")
    headers = {name: value for name, value in zip(names, after, strict=True) if value}
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": urlset_of(PAGES)}
    first = await read_once(site, make_analyzer)
    site.pages["/s.xml"] = lambda _: web.Response(body=urlset_of(OTHER), headers=headers)
    document = known(first, validators=before, may_send_validators=False)
    closed = (await scan(site, make_analyzer, document)).all(DocumentClosed)[0]
    assert closed.validators_lied is lied
    assert not any(name.startswith("If-") for name in site.requests[-1].headers)


async def test_other_compression_is_no_lie(site, make_analyzer):
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": gzip.compress(urlset_of(PAGES), 9)}
    first = await read_once(site, make_analyzer)
    site.pages["/s.xml"] = lambda _: web.Response(
        body=gzip.compress(urlset_of(PAGES), 0), headers={"ETag": '"v1"'}
    )
    document = known(first, validators=Validators('"v1"'), may_send_validators=False)
    closed = (await scan(site, make_analyzer, document)).all(DocumentClosed)[0]
    assert (closed.outcome, closed.validators_lied) == ("complete", False)


@pytest.mark.parametrize(
    ("content", "is_window"),
    [
        (b"<rss><channel><item><link>https://a.example/</link></item></channel></rss>", True),
        (b"<feed><entry><link href='https://a.example/'/></entry></feed>", True),
        (urlset_of(PAGES), False),
        (urlset_of([]), False),
        (index_of([]), False),
        (b"https://a.example/1\n", False),
    ],
    ids=["rss", "atom", "urlset", "empty", "index", "text"],
)
async def test_feeds_are_windows(site, make_analyzer, content, is_window):
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": content}
    assert (await read_once(site, make_analyzer)).is_window is is_window


@pytest.mark.parametrize(("news", "is_window"), [(0, False), (4, False), (5, True), (10, True)])
async def test_a_document_of_which_half_is_news_is_a_window(site, make_analyzer, news, is_window):
    entries = [
        f"<url><loc>https://a.example/{n}</loc>{NEWS if n < news else ''}</url>" for n in range(10)
    ]
    site.pages |= {"/robots.txt": ROBOTS, "/s.xml": urlset("".join(entries), attributes=NEWS_SPACE)}
    assert (await read_once(site, make_analyzer)).is_window is is_window


@pytest.mark.parametrize(
    ("body", "head", "proves"),
    [
        (b"https://a.example/1\n", "", False),
        (b"https://a.example/1\n", "Content-Length: 20\r\n", True),
        (b"14\r\nhttps://a.example/1\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n", True),
        (gzip.compress(b"https://a.example/1\n"), "", True),
        (urlset_of(PAGES), "", True),
    ],
    ids=["text", "text with a length", "text in chunks", "text in gzip", "xml"],
)
async def test_text_without_a_framed_length_proves_no_removals(make_analyzer, body, head, proves):
    async def serve(connection):
        while (request := await connection.request()) is not None:
            if "robots.txt" in request:
                await connection.answer(ROBOTS.encode())
            else:
                await connection.send(f'HTTP/1.1 200 OK\r\nETag: "1"\r\n{head}\r\n'.encode() + body)
                return

    async with RawServer(serve) as server:
        record = await record_scan(make_analyzer(server.entry), server.url(""))
    closed = record.all(DocumentClosed)[0]
    assert (closed.outcome, closed.proves_removals) == ("complete", proves)
    assert (closed.validators.etag == '"1"') is proves
    assert (closed.content_hash is not None) is proves
