"""Documents that are requested without being read."""

from __future__ import annotations

import pytest
from aiohttp import web

from siteatlas.net.address import parse_site
from siteatlas.scanner.events import DocumentProbe
from tests.fixtures.documents import urlset_of


async def probe(analyzer, site, *paths):
    urls = [site.base + path for path in paths]
    return [found async for found in analyzer.probe_documents(parse_site(site.base), urls)]


@pytest.mark.parametrize(
    ("status", "code"),
    [(200, None), (404, "http_not_found"), (410, "http_not_found"), (500, "server_error")],
)
async def test_a_probe_reports_the_status_and_its_error(site, make_analyzer, status, code):
    site.pages["/s.xml"] = lambda _: web.Response(status=status, body=urlset_of([]))
    url = f"{site.base}/s.xml"
    found = await probe(make_analyzer(site.host_port), site, "/s.xml")
    assert found == [DocumentProbe(url, url, status, code)]


async def test_a_probe_reports_where_a_document_redirects_to(site, make_analyzer):
    site.pages |= {
        "/old.xml": lambda _: web.Response(status=301, headers={"Location": "/new.xml"}),
        "/new.xml": urlset_of([]),
    }
    found = await probe(make_analyzer(site.host_port), site, "/old.xml")
    assert found == [DocumentProbe(f"{site.base}/old.xml", f"{site.base}/new.xml", 200)]


async def test_documents_are_probed_in_order_each_once(site, make_analyzer):
    found = await probe(make_analyzer(site.host_port), site, "/b.xml", "/a.xml")
    assert site.paths == ["/b.xml", "/a.xml"]
    assert [one.http_status for one in found] == [404, 404]


async def test_the_body_of_a_probed_document_is_not_read(site, make_analyzer):
    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"<urlset>")
        await request.content.read()
        return response

    site.pages["/s.xml"] = endless
    analyzer = make_analyzer(site.host_port)
    assert [one.http_status for one in await probe(analyzer, site, "/s.xml")] == [200]


async def test_a_probe_keeps_to_the_egress_policy(make_analyzer):
    urls = ["http://10.0.0.1/s.xml", "ftp://a.example/s.xml"]
    site = parse_site("http://127.0.0.1:9")
    found = [one async for one in make_analyzer("127.0.0.1:9").probe_documents(site, urls)]
    assert [one.error_code for one in found] == ["egress_denied", "address_scheme"]
    assert [one.http_status for one in found] == [None, None]
