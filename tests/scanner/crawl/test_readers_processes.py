"""Documents that other processes read: the same result as without them, whatever happens."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from siteatlas.cli.scan.output import EntryFilter, SiteEncoder, encode_objects
from siteatlas.errors import ScanError, error_classes
from siteatlas.net.address import parse_site
from siteatlas.net.response import Response
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.crawl import readers
from siteatlas.scanner.crawl.readers import (
    ReaderPool,
    RemoteReaders,
    StartReading,
    read_document,
)
from siteatlas.scanner.events import EntriesRead, ScanEvent
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.report import ReportBuilder
from tests.corpus.cases import load_cases
from tests.fixtures.documents import index_of, urlset_of
from tests.fixtures.site_server import Handler, SiteServer
from tests.fixtures.waiting import wait_until
from tests.scanner.conftest import MakeAnalyzer

ENTRIES = 20_000
MIB = 1024 * 1024
# One after another, so that every document is read by a process and the report has one order.
ONE_BY_ONE = ScanOptions(documents_in_flight=1, find_duplicates=True)

OnEvent = Callable[[ScanEvent], None]


def encoder() -> SiteEncoder:
    return SiteEncoder("site", encode_objects, EntryFilter.of(None, [], ["*/not-wanted*"]))


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are started for any two documents, and read even the smallest."""
    monkeypatch.setattr(readers, "MIN_SITE_BYTES", 0)
    monkeypatch.setattr(readers, "MIN_DOCUMENT_BYTES", 0)


class Scanned:
    """What a scan found: its report without times, its lines, and who read how many documents."""

    def __init__(self) -> None:
        self.builder = ReportBuilder("site")
        self.lines: list[bytes] = []
        self.encoded_count = 0

    async def scan(
        self,
        analyzer: SitemapAnalyzer,
        site: SiteServer,
        readers: RemoteReaders | None = None,
        on_event: OnEvent = lambda _event: None,
    ) -> None:
        encode = encoder()
        events = analyzer.scan(parse_site(site.base), ONE_BY_ONE, readers=readers)
        async with aclosing(events):
            async for event in events:
                self.builder.observe(event)
                if isinstance(event, EntriesRead):
                    self.encoded_count += event.encoded is not None
                    found = event.encoded or encode(event)
                    self.lines += found.data.splitlines()
                on_event(event)
        self.builder.sort_sitemaps()

    @property
    def report(self) -> dict[str, Any]:
        """The report without what differs from scan to scan, or with the filter of the command."""
        report = asdict(self.builder.report)
        for sitemap in report["sitemaps"]:
            del sitemap["fetch_seconds"], sitemap["url_count"]
        del report["url_count"]
        return report


async def with_pool(
    analyzer: SitemapAnalyzer, site: SiteServer, on_event: OnEvent = lambda _event: None
) -> Scanned:
    scanned = Scanned()
    async with ReaderPool(1) as pool:
        await scanned.scan(analyzer, site, RemoteReaders(pool, encoder()), on_event)
    return scanned


async def without_pool(analyzer: SitemapAnalyzer, site: SiteServer) -> Scanned:
    scanned = Scanned()
    await scanned.scan(analyzer, site)
    return scanned


def show(site: SiteServer, **documents: bytes | Handler) -> None:
    """Show documents as the children of one index."""
    site.pages = {
        "/robots.txt": "Sitemap: {base}/index.xml\n",
        "/index.xml": index_of(f"{site.base}/{name}.xml" for name in documents),
    }
    site.pages |= {f"/{name}.xml": document for name, document in documents.items()}


def document_of(site: SiteServer, name: str, count: int = ENTRIES) -> bytes:
    return urlset_of(f"{site.base}/{name}/{number}" for number in range(count))


@pytest.mark.usefixtures("any_size")
async def test_every_document_of_the_corpus_is_read_as_by_one_process(
    make_analyzer: MakeAnalyzer, site: SiteServer
):
    cases = [case for case in load_cases() if case.kind != "robots"]
    show(site, **{f"case-{number}": case.file.read_bytes() for number, case in enumerate(cases)})
    analyzer = make_analyzer(site.host_port)
    one, two = await without_pool(analyzer, site), await with_pool(analyzer, site)
    assert two.encoded_count > 100
    assert two.report == one.report
    assert two.lines == one.lines


@pytest.mark.usefixtures("any_size")
async def test_filters_duplicates_and_foreign_pages_are_counted_as_by_one_process(
    make_analyzer: MakeAnalyzer, site: SiteServer
):
    urls = ["/a", "/not-wanted", "/a", "https://elsewhere.example/", "http://10.0.0.1/"]
    mixed = urlset_of(url if "://" in url else f"{site.base}{url}" for url in urls)
    show(site, first=mixed, second=mixed, third=document_of(site, "third"))
    analyzer = make_analyzer(site.host_port)
    one, two = await without_pool(analyzer, site), await with_pool(analyzer, site)
    codes = {problem["code"] for problem in two.report["problems"]}
    assert codes >= {"duplicate_url", "off_host", "private_host", "duplicate_content"}
    assert two.report == one.report
    assert two.lines == one.lines
    assert two.builder.report.url_count == 4 + 4 + ENTRIES


@pytest.mark.usefixtures("any_size")
async def test_a_killed_process_loses_nothing(make_analyzer: MakeAnalyzer, site: SiteServer):
    whole = {name: document_of(site, name) for name in ("first", "second", "third")}
    show(site, **whole)
    analyzer = make_analyzer(site.host_port)
    one = await without_pool(analyzer, site)
    killed = asyncio.Event()

    async def stops_in_the_middle(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": str(len(whole["second"]))})
        await answer.prepare(request)
        half = len(whole["second"]) // 2
        await answer.write(whole["second"][:half])
        await killed.wait()
        await answer.write(whole["second"][half:])
        return answer

    def kill(event: ScanEvent) -> None:
        if isinstance(event, EntriesRead) and event.url.endswith("second.xml") and event.encoded:
            (child,) = children()
            os.kill(child, signal.SIGKILL)
            killed.set()

    site.pages["/second.xml"] = stops_in_the_middle
    site.requests.clear()
    two = await with_pool(analyzer, site, kill)
    assert site.paths.count("/second.xml") == 2
    assert two.lines == one.lines
    assert two.report == one.report
    assert not children()


@pytest.mark.usefixtures("any_size")
async def test_a_cancelled_scan_ends_its_process(make_analyzer: MakeAnalyzer, site: SiteServer):
    async def silent(_request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    show(site, first=document_of(site, "first"), second=silent)
    scan = asyncio.create_task(with_pool(make_analyzer(site.host_port), site))
    await wait_until(lambda: "/second.xml" in site.paths)
    assert children()
    scan.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scan
    assert not children()


@pytest.mark.usefixtures("any_size")
async def test_without_a_process_a_scan_reads_everything_itself(
    make_analyzer: MakeAnalyzer, site: SiteServer, monkeypatch: pytest.MonkeyPatch
):
    def fail(_descriptor: int) -> None:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(readers, "_start_program", fail)
    show(site, first=document_of(site, "first"), second=document_of(site, "second"))
    two = await with_pool(make_analyzer(site.host_port), site)
    assert two.encoded_count == 0
    assert len(two.lines) == 2 * ENTRIES


async def test_a_small_site_starts_no_process(make_analyzer: MakeAnalyzer, site: SiteServer):
    show(site, first=document_of(site, "first"), second=document_of(site, "second"))
    two = await with_pool(make_analyzer(site.host_port), site, lambda _event: not_started())
    assert two.encoded_count == 0
    assert len(two.lines) == 2 * ENTRIES


@pytest.mark.usefixtures("any_size")
async def test_a_document_that_nobody_waits_for_does_not_hold_up_others():
    async with ReaderPool(1) as pool:
        process = await pool.process_for(response_of(None), 2)
        assert process is not None
        body = urlset_of(f"https://a.example/{number}" for number in range(200_000))
        async with aclosing(process.results(reading(), one_chunk(body))) as results:
            await anext(results)
            # Until the process cannot send any more.
            await asyncio.sleep(0.5)
        async with aclosing(process.results(reading(), one_chunk(body))) as results:
            found = [result.encoded.found async for _, result in results if result.encoded]
        assert sum(found) == 200_000


async def one_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


def reading() -> StartReading:
    return partial(
        read_document,
        address=parse_site("https://a.example/sitemap.xml"),
        content_encoding=None,
        charset=None,
        site_host="a.example",
        anywhere=True,
        find_duplicates=False,
        encode=encoder(),
    )


def response_of(
    length: int | None, encoding: str | None = None, url: str = "https://a.example/sitemap.xml"
) -> Response:
    """A response of which only the head matters."""
    return cast(
        "Response",
        SimpleNamespace(content_length=length, content_encoding=encoding, address=parse_site(url)),
    )


@pytest.mark.parametrize(
    ("response", "documents_left", "is_started"),
    [
        (response_of(20 * MIB), 1, False),
        (response_of(20 * MIB), 2, True),
        (response_of(2 * MIB), 2, False),
        (response_of(2 * MIB), 8, True),
        (response_of(MIB // 4), 10_000, False),
        (response_of(MIB // 4, "gzip"), 8, True),
        (response_of(MIB // 4, url="https://a.example/sitemap.xml.gz"), 8, True),
        (response_of(None), 10_000, False),
    ],
)
async def test_processes_are_started_for_several_large_documents_only(
    response: Response, documents_left: int, is_started: bool
):
    async with ReaderPool(1) as pool:
        process = await pool.process_for(response, documents_left)
        assert (process is not None, bool(children())) == (is_started, is_started)


async def test_a_document_of_unknown_length_is_expected_to_be_like_the_last_one():
    async with ReaderPool(1) as pool:
        pool.note_size(20 * MIB)
        assert await pool.process_for(response_of(None), 2) is not None
        pool.note_size(1000)
        assert await pool.process_for(response_of(None), 2) is None


async def test_whole_documents_go_to_whoever_reads_fewer():
    large = response_of(20 * MIB)
    async with ReaderPool(1) as pool:
        process = await pool.process_for(large, 9)
        assert process is not None
        body = urlset_of(["https://a.example/"])
        async with aclosing(process.results(reading(), one_chunk(body))) as results:
            await anext(results)
            assert await pool.process_for(large, 9) is None
            with pool.local_document():
                assert await pool.process_for(large, 9) is process
        assert await pool.process_for(large, 9) is process


def not_started() -> None:
    assert not children()


def children() -> list[int]:
    """The processes that this one has started and that have not ended."""
    own = os.getpid()
    return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]


@pytest.mark.parametrize("kind", [kind for kind in error_classes() if issubclass(kind, ScanError)])
def test_an_error_of_a_document_survives_the_way_between_processes(kind: type[ScanError]):
    error = kind("what happened")
    received = pickle.loads(pickle.dumps(error))
    assert (type(received), received.message) == (kind, error.message)
