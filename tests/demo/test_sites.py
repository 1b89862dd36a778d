"""The demo sites answer over HTTP what their plan promises."""

from __future__ import annotations

import gzip
import re
import socket
from collections.abc import AsyncIterator
from xml.etree import ElementTree as ET

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from siteatlas.demo import DemoServer, DemoSite

LOC = "{http://www.sitemaps.org/schemas/sitemap/0.9}loc"


@pytest.fixture
async def demo() -> AsyncIterator[DemoServer]:
    async with DemoServer() as server:
        yield server


class Loopback(AbstractResolver):
    """What browsers and the scanner know of names that end in `.localhost`."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        assert host.endswith(".localhost")
        found = ResolveResult(
            hostname=host, host="127.0.0.1", port=port, family=family, proto=0, flags=0
        )
        return [found]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(resolver=Loopback(), family=socket.AF_INET)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


def site(demo: DemoServer, name: str) -> DemoSite:
    return next(site for site in demo.sites if site.name == name)


async def fetch(http: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    async with http.get(url) as response:
        return response.status, await response.read()


async def locations(http: aiohttp.ClientSession, url: str) -> tuple[str, list[str]]:
    """The root element and the addresses of a well-formed sitemap."""
    status, body = await fetch(http, url)
    assert status == 200
    root = ET.fromstring(gzip.decompress(body) if url.endswith(".gz") else body)
    return root.tag.rpartition("}")[2], [loc.text or "" for loc in root.iter(LOC)]


async def read_all(http: aiohttp.ClientSession, url: str) -> tuple[int, int]:
    """Follow indexes from `url`: how many documents and listings there are."""
    kind, found = await locations(http, url)
    if kind == "urlset":
        return 1, len(found)
    below = [await read_all(http, child) for child in found]
    return 1 + sum(documents for documents, _ in below), sum(listings for _, listings in below)


async def robots_sitemaps(http: aiohttp.ClientSession, base_url: str) -> list[str]:
    _, body = await fetch(http, f"{base_url}/robots.txt")
    return re.findall(r"(?im)^sitemap:\s*([^\s#]+)", body.decode())


async def test_every_site_has_a_name_on_the_one_port(demo: DemoServer):
    hosts = [site.host_port for site in demo.sites]
    assert hosts == [f"{site.name}.localhost:{demo.port}" for site in demo.sites]
    assert len(set(hosts)) == 7
    assert all(site.base_url == f"http://{site.host_port}" for site in demo.sites)


@pytest.mark.parametrize("host", ["127.0.0.1", "www.shop.localhost", "localhost"])
async def test_a_name_that_is_no_site_is_answered_with_404(host, demo, http):
    named = {"Host": f"{host}:{demo.port}"}
    async with http.get(f"http://127.0.0.1:{demo.port}/", headers=named) as response:
        assert response.status == 404


async def test_a_taken_port_is_left_to_its_program(demo: DemoServer):
    async with DemoServer(ports=(demo.port, 0)) as second:
        assert second.port not in {0, demo.port}
        assert all(f":{second.port}" in site.base_url for site in second.sites)


@pytest.mark.parametrize("name", ["shop", "magazine"])
async def test_what_robots_names_holds_the_promised_listings(name, demo, http):
    place = site(demo, name)
    totals = [await read_all(http, url) for url in await robots_sitemaps(http, place.base_url)]
    assert sum(documents for documents, _ in totals) == place.expected_sitemaps
    assert sum(listings for _, listings in totals) == place.expected_urls


async def test_the_addresses_of_the_shop_are_all_different(demo, http):
    base = site(demo, "shop").base_url
    _, products = await locations(http, f"{base}/sitemaps/products-0.xml.gz")
    assert len(set(products)) == 250
    assert "&lang=en" in products[0]


async def test_the_magazine_has_images_languages_and_news(demo, http):
    base = site(demo, "magazine").base_url
    _, articles = await fetch(http, f"{base}/sitemap-articles.xml")
    _, latest = await fetch(http, f"{base}/sitemap-news.xml")
    assert articles.count(b"<image:loc>") == 240
    assert articles.count(b"<xhtml:link ") == 480
    assert latest.count(b"<news:title>") == 30


async def test_the_text_sitemap_is_the_only_trace_of_itself(demo, http):
    place = site(demo, "papers")
    status, body = await fetch(http, f"{place.base_url}/sitemap.txt")
    robots_status, _ = await fetch(http, f"{place.base_url}/robots.txt")
    assert (status, robots_status) == (200, 404)
    assert len(body.decode().split()) == place.expected_urls


async def test_the_blog_has_an_index_that_robots_does_not_name(demo, http):
    place = site(demo, "blog")
    assert await robots_sitemaps(http, place.base_url) == []
    totals = await read_all(http, f"{place.base_url}/sitemap_index.xml")
    assert totals == (place.expected_sitemaps, place.expected_urls)


async def test_the_broken_file_has_bare_ampersands_and_no_end(demo, http):
    place = site(demo, "rooms")
    _, broken = await fetch(http, f"{place.base_url}/search.xml")
    _, good = await locations(http, f"{place.base_url}/rooms.xml")
    assert b"colour=blue&size=00" in broken
    assert b"</urlset>" not in broken
    assert len(good) + broken.count(b"</url>") == place.expected_urls
    assert place.expected_partial


@pytest.mark.parametrize("path", ["/robots.txt", "/sitemap.xml", "/any/where"])
async def test_a_site_without_a_sitemap_answers_404(path, demo, http):
    status, _ = await fetch(http, site(demo, "card").base_url + path)
    assert status == 404


@pytest.mark.parametrize("path", ["/robots.txt", "/sitemap.xml", "/any/where"])
async def test_the_single_page_app_answers_everything_with_a_page(path, demo, http):
    status, body = await fetch(http, site(demo, "app").base_url + path)
    assert status == 200
    assert body.startswith(b"<!doctype html>")


async def test_an_unchanged_document_is_answered_with_304(demo, http):
    url = f"{site(demo, 'shop').base_url}/sitemap.xml"
    async with http.get(url) as first:
        tag = first.headers["ETag"]
    async with http.get(url, headers={"If-None-Match": tag}) as second:
        assert second.status == 304


async def test_stopping_frees_the_port():
    server = DemoServer()
    await server.start()
    await server.stop()
    async with DemoServer(ports=(server.port,)) as again:
        assert again.port == server.port
