"""Documents that are requested without being read."""

from __future__ import annotations

import pytest
from aiohttp import web

from siteatlas.errors import HttpNotFound, ServerError
from siteatlas.net.address import parse_site
from tests.fixtures.documents import urlset_of


async def probe(analyzer, site, *paths):
    urls = [site.base + path for path in paths]
    return [found async for found in analyzer.probe_documents(parse_site(site.base), urls)]


@pytest.mark.parametrize(
    ("status", "error"), [(404, HttpNotFound), (410, HttpNotFound), (500, ServerError)]
)
async def test_a_probe_reports_the_error_of_a_status(site, make_analyzer, status, error):
    site.pages["/s.xml"] = lambda _: web.Response(status=status, body=urlset_of([]))
    ((url, found),) = await probe(make_analyzer(site.host_port), site, "/s.xml")
    assert (url, type(found)) == (f"{site.base}/s.xml", error)


async def test_a_document_that_is_not_found_is_not_found_behind_a_firewall_either(
    site, make_analyzer
):
    headers = {"cf-mitigated": "challenge"}
    site.pages["/s.xml"] = lambda _: web.Response(status=404, headers=headers)
    ((_, found),) = await probe(make_analyzer(site.host_port), site, "/s.xml")
    assert isinstance(found, HttpNotFound)


async def test_a_probe_reports_where_a_document_redirects_to(site, make_analyzer):
    site.pages |= {
        "/old.xml": lambda _: web.Response(status=301, headers={"Location": "/new.xml"}),
        "/new.xml": urlset_of([]),
    }
    found = await probe(make_analyzer(site.host_port), site, "/old.xml")
    assert found == [(f"{site.base}/old.xml", f"{site.base}/new.xml")]


async def test_documents_are_probed_in_order_each_once(site, make_analyzer):
    found = await probe(make_analyzer(site.host_port), site, "/b.xml", "/a.xml")
    assert site.paths == ["/b.xml", "/a.xml"]
    assert [url for url, _ in found] == [f"{site.base}/b.xml", f"{site.base}/a.xml"]


async def test_the_body_of_a_probed_document_is_not_read(site, make_analyzer):
    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"<urlset>")
        await request.content.read()
        return response

    site.pages["/s.xml"] = endless
    url = f"{site.base}/s.xml"
    assert await probe(make_analyzer(site.host_port), site, "/s.xml") == [(url, url)]


async def test_a_probe_keeps_to_the_egress_policy(make_analyzer):
    urls = ["http://10.0.0.1/s.xml", "ftp://a.example/s.xml"]
    site = parse_site("http://127.0.0.1:9")
    found = [one async for one in make_analyzer("127.0.0.1:9").probe_documents(site, urls)]
    assert [error.code for _, error in found] == ["egress_denied", "address_scheme"]
