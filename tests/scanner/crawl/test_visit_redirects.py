"""Several documents that redirect to one address, readable or not."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from siteatlas.scanner.events import CandidateJudged, DocumentClosed
from tests.fixtures.documents import urlset_of
from tests.fixtures.scans import record_scan

PAGES = [f"https://a.example/{number}" for number in range(3)]


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_documents_that_redirect_to_a_page_keep_their_addresses(site, make_analyzer, status):
    def moved(_request: web.BaseRequest) -> web.Response:
        return web.Response(status=302, headers={"Location": "/maintenance"})

    def page(_request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text="<html>", content_type="text/html")

    site.pages |= {"/robots.txt": "Sitemap: /a.xml\nSitemap: /b.xml", "/maintenance": page}
    site.pages |= {"/a.xml": moved, "/b.xml": moved}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert set(record.outcomes) == {"/a.xml", "/b.xml"}
    assert {event.http_status for event in record.all(DocumentClosed)} == {status}
    assert not any(event.reason == "duplicate" for event in record.all(CandidateJudged))


@pytest.mark.parametrize("first_is_read", [True, False])
async def test_a_second_redirect_to_one_document_waits_for_the_first(
    site, make_analyzer, first_is_read
):
    second_came = asyncio.Event()
    requests = 0

    async def target(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal requests
        requests += 1
        is_first = requests == 1
        response = web.StreamResponse()
        await response.prepare(request)
        if is_first:
            await second_came.wait()
            await asyncio.sleep(0.05)
        second_came.set()
        body = urlset_of(PAGES) if first_is_read or not is_first else b"<html>"
        await response.write(body)
        return response

    def moved(_request: web.BaseRequest) -> web.Response:
        return web.Response(status=302, headers={"Location": "/target.xml"})

    site.pages |= {"/robots.txt": "Sitemap: /a.xml\nSitemap: /b.xml", "/target.xml": target}
    site.pages |= {"/a.xml": moved, "/b.xml": moved}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == PAGES
    outcomes = sorted(record.outcomes.items())
    if first_is_read:
        assert outcomes == [("/target.xml", "complete")]
        assert "skipped duplicate" in record.verdicts.values()
    else:
        assert [outcome for _, outcome in outcomes] == ["unread html_instead", "complete"]
