"""A second scan sends what it knows of each document and reads only what changed."""

from __future__ import annotations

import pytest
from aiohttp import web

from siteatlas.scanner.events import (
    CandidateJudged,
    ChildLink,
    ChildrenFound,
    DocumentClosed,
    DocumentOutcome,
    UnchangedBy,
    Validators,
)
from siteatlas.scanner.options import KnownDocument, ScanMemory, ScanOptions
from tests.fixtures.documents import index_of, urlset_of
from tests.fixtures.scans import record_scan

DATE = "Mon, 02 Nov 2026 10:00:00 GMT"
PAGE = ["https://a.example/1"]


class Versioned:
    """A document that answers 304 to whoever knows its version."""

    def __init__(self, content: bytes, etag: str | None = '"v1"', date: str | None = DATE) -> None:
        self.content = content
        self.headers = {
            name: value for name, value in (("ETag", etag), ("Last-Modified", date)) if value
        }
        self.asked: list[tuple[str | None, str | None]] = []

    def __call__(self, request: web.BaseRequest) -> web.Response:
        etag = request.headers.get("If-None-Match")
        date = request.headers.get("If-Modified-Since")
        self.asked.append((etag, date))
        unchanged = etag == self.headers.get("ETag") if etag else date == DATE if date else False
        if unchanged:
            return web.Response(status=304, headers=self.headers)
        return web.Response(body=self.content, headers=self.headers)


def redirecting_to(place: str, asked: Versioned):
    """A page that redirects, and records the validators of each request like a document."""

    def answer(request: web.BaseRequest) -> web.Response:
        asked(request)
        return web.Response(status=301, headers={"Location": place})

    return answer


def build_scan_memory(record) -> ScanMemory:
    """What a caller would remember of a scan."""
    children = {event.url: event.children for event in record.all(ChildrenFound)}
    return {
        event.url: KnownDocument(
            event.url, validators=event.validators, children=children.get(event.url, ())
        )
        for event in record.all(DocumentClosed)
    }


@pytest.mark.parametrize(
    ("etag", "date"), [('"v1"', DATE), ('W/"v1"', None), (None, DATE)], ids=["both", "tag", "date"]
)
async def test_a_second_scan_of_an_unchanged_site_reads_nothing(site, make_analyzer, etag, date):
    child = Versioned(urlset_of(PAGE), etag, date)
    site.pages |= {"/robots.txt": "Sitemap: /i.xml", "/s.xml": child}
    index = Versioned(index_of([f"{site.base}/s.xml"]), etag, date)
    site.pages |= {"/i.xml": index}
    analyzer = make_analyzer(site.host_port)
    first = await record_scan(analyzer, site.base)
    second = await record_scan(analyzer, site.base, memory=build_scan_memory(first))
    assert first.outcomes == {"/i.xml": "complete", "/s.xml": "complete"}
    assert second.outcomes == {"/i.xml": "unchanged", "/s.xml": "unchanged"}
    assert (second.urls, second.error) == ([], None)
    assert index.asked == child.asked == [(None, None), (etag, date)]


async def test_an_unchanged_document_keeps_its_validators_and_reports_its_status(
    site, make_analyzer
):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": Versioned(urlset_of(PAGE))}
    analyzer = make_analyzer(site.host_port)
    first = await record_scan(analyzer, site.base)
    closed = (await record_scan(analyzer, site.base, memory=build_scan_memory(first))).all(
        DocumentClosed
    )
    assert closed[0].outcome is DocumentOutcome.UNCHANGED
    assert closed[0].unchanged_by is UnchangedBy.NOT_MODIFIED
    assert closed[0].http_status == 304
    assert closed[0].validators == Validators('"v1"', DATE)
    assert closed[0].wire_bytes == closed[0].entry_count == 0


async def test_an_unchanged_index_yields_the_children_that_are_known(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: /i.xml",
        "/i.xml": Versioned(b"never read"),
        "/new.xml": urlset_of(PAGE),
    }
    url = f"{site.base}/i.xml"
    children = (ChildLink(f"{site.base}/new.xml"),)
    memory = {url: KnownDocument(url, validators=Validators('"v1"'), children=children)}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.urls == PAGE
    assert record.all(ChildrenFound) == [ChildrenFound(url, children)]
    assert record.outcomes == {"/i.xml": "unchanged", "/new.xml": "complete"}


async def test_a_changed_document_is_read_and_gives_its_new_validators(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": Versioned(urlset_of(PAGE), '"v2"')}
    url = f"{site.base}/s.xml"
    memory = {url: KnownDocument(url, validators=Validators('"v1"'))}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.urls == PAGE
    assert record.all(DocumentClosed)[0].validators.etag == '"v2"'


async def test_the_content_hash_is_the_same_for_the_same_content(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": urlset_of(PAGE)}
    analyzer = make_analyzer(site.host_port)
    hashes = [
        (await record_scan(analyzer, site.base)).all(DocumentClosed)[0].content_hash
        for _ in range(2)
    ]
    site.pages |= {"/s.xml": urlset_of([*PAGE, "https://a.example/2"])}
    other = (await record_scan(analyzer, site.base)).all(DocumentClosed)[0].content_hash
    assert hashes[0] == hashes[1] != other
    assert hashes[0] is not None


async def test_a_document_that_breaks_off_gives_no_validators_and_no_hash(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": Versioned(urlset_of(PAGE)[:-8])}
    closed = (await record_scan(make_analyzer(site.host_port), site.base)).all(DocumentClosed)[0]
    assert closed.outcome is DocumentOutcome.CUT
    assert (closed.validators, closed.content_hash) == (Validators(), None)


async def test_behind_a_redirect_validators_go_only_to_the_address_that_gave_them(
    site, make_analyzer
):
    document, redirect = Versioned(urlset_of(PAGE)), Versioned(b"")
    site.pages |= {
        "/robots.txt": "Sitemap: /old.xml",
        "/old.xml": redirecting_to("/new.xml", redirect),
        "/new.xml": document,
    }
    known = KnownDocument(f"{site.base}/new.xml", validators=Validators('"v1"', DATE))
    memory = {known.url: known, f"{site.base}/old.xml": known}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.outcomes == {"/new.xml": "unchanged"}
    assert record.all(DocumentClosed)[0].requested_url == f"{site.base}/old.xml"
    assert document.asked == [('"v1"', DATE)]
    assert redirect.asked == [(None, None)]


async def test_a_document_that_moved_is_read_without_its_old_validators(site, make_analyzer):
    document, redirect = Versioned(urlset_of(PAGE)), Versioned(b"")
    site.pages |= {
        "/robots.txt": "Sitemap: /old.xml",
        "/old.xml": redirecting_to("/new.xml", redirect),
        "/new.xml": document,
    }
    known = KnownDocument(f"{site.base}/old.xml", validators=Validators('"v1"', DATE))
    memory = {known.url: known}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.outcomes == {"/new.xml": "complete"}
    assert (document.asked, redirect.asked) == ([(None, None)], [('"v1"', DATE)])


async def test_validators_that_may_not_be_sent_are_not(site, make_analyzer):
    document = Versioned(urlset_of(PAGE))
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": document}
    known = KnownDocument(
        f"{site.base}/s.xml", validators=Validators('"v1"', DATE), may_send_validators=False
    )
    memory = {known.url: known}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.outcomes == {"/s.xml": "complete"}
    assert document.asked == [(None, None)]


@pytest.mark.parametrize("etag", ['"a\r\nX-Evil: 1"', '"ü"', ""])
async def test_a_validator_that_no_header_can_hold_is_left_out(site, make_analyzer, etag):
    document = Versioned(urlset_of(PAGE))
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": document}
    url = f"{site.base}/s.xml"
    memory = {url: KnownDocument(url, validators=Validators(etag))}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.urls == PAGE
    assert document.asked == [(None, None)]


async def test_a_redirect_to_a_document_that_was_read_reports_its_target(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: /i.xml",
        "/i.xml": index_of([f"{site.base}/new.xml", f"{site.base}/old.xml"]),
        "/old.xml": lambda _: web.Response(status=301, headers={"Location": "/new.xml"}),
        "/new.xml": urlset_of(PAGE),
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    judged = next(event for event in record.all(CandidateJudged) if event.reason == "duplicate")
    assert (judged.url, judged.final_url) == (f"{site.base}/old.xml", f"{site.base}/new.xml")


async def test_a_redirect_to_a_document_done_before_reports_its_target(site, make_analyzer):
    site.pages |= {
        "/robots.txt": "Sitemap: /i.xml",
        "/i.xml": index_of([f"{site.base}/old.xml"]),
        "/old.xml": lambda _: web.Response(status=301, headers={"Location": "/new.xml"}),
        "/new.xml": urlset_of(PAGE),
    }
    new = f"{site.base}/new.xml"
    memory = {new: KnownDocument(new, done=True)}
    record = await record_scan(make_analyzer(site.host_port), site.base, memory=memory)
    assert record.verdicts["/old.xml"] == "skipped duplicate"
    assert record.all(CandidateJudged)[-1].final_url == new
    assert record.urls == []


@pytest.mark.parametrize(("most", "outcome"), [(3, "cut url_limit"), (4, "unchanged")])
async def test_a_known_document_with_more_entries_than_the_limit_is_read_up_to_it(
    site, make_analyzer, most, outcome
):
    pages = [f"https://a.example/{number}" for number in range(4)]
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": Versioned(urlset_of(pages))}
    analyzer = make_analyzer(site.host_port)
    first = await record_scan(analyzer, site.base)
    (read,) = first.all(DocumentClosed)
    known = KnownDocument(
        read.url,
        validators=read.validators,
        content_hash=read.content_hash,
        entry_count=read.entry_count,
    )
    second = await record_scan(analyzer, site.base, ScanOptions(max_urls=most), {read.url: known})
    assert second.outcomes == {"/s.xml": outcome}
