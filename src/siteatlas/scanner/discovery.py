"""Where the sitemaps of a site may be: its origin, its robots.txt, the well-known paths.

Owns the lists and the single requests of discovery; the order of steps is `site_scan.py`'s.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from siteatlas.errors import (
    AddressError,
    RateLimited,
    RedirectInvalid,
    RedirectLoop,
    RobotsUnreachable,
    ScanError,
    ServerError,
    TooManyRedirects,
)
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient, Response
from siteatlas.scanner.body import Body, BodyLimits
from siteatlas.scanner.document import DocumentReader
from siteatlas.scanner.events import SitemapType
from siteatlas.scanner.frontier import bare_host
from siteatlas.scanner.robots import MAX_BYTES, Robots, parse_robots
from siteatlas.scanner.tally import Tally

MAX_GUESSES = 60
ROBOTS_WIRE_BYTES = 1024 * 1024
USUAL_PATHS = (
    "/sitemap.xml",
    "/sitemap_index.xml",
    "/wp-sitemap.xml",
    "/sitemap-index.xml",
    "/sitemapindex.xml",
    "/sitemap.xml.gz",
    "/sitemap_index.xml.gz",
    "/sitemap-index.xml.gz",
    "/sitemap.txt",
    "/sitemaps.xml",
    "/sitemap/sitemap.xml",
    "/sitemap/sitemap-index.xml",
    "/sitemap/index.xml",
    "/sitemap/",
    "/sitemap",
    "/sitemap1.xml",
    "/sitemap-0.xml",
    "/sitemap-1.xml",
    "/news-sitemap.xml",
    "/sitemap_news.xml",
    "/sitemap-news.xml",
    "/news-sitemap.xml.gz",
    "/sitemap_news.xml.gz",
    "/sitemap-news.xml.gz",
    "/sitemap.php",
    "/xmlsitemap.php",
)
RARE_PATHS = (
    "/1_index_sitemap.xml",
    "/media/sitemap/sitemap.xml",
    "/pub/sitemap.xml",
    "/catalog/sitemaps/catalog.xml",
    "/post-sitemap.xml",
    "/page-sitemap.xml",
    "/product-sitemap.xml",
    "/products-sitemap.xml",
    "/category-sitemap.xml",
    "/store-products-sitemap.xml",
    "/sitemap_products_1.xml",
    "/wp-sitemap-posts-post-1.xml",
    "/sitemap-posts-post-1.xml",
    "/sitemap-pages-post-1.xml",
    "/sitemap-categories-1.xml",
    "/server-sitemap.xml",
    "/.sitemap.xml",
    "/admin/config/search/xmlsitemap",
    "/feed",
    "/rss.xml",
    "/atom.xml",
    "/feed.xml",
)
CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """What came of asking for robots.txt; `address` is the one that answered, if any did."""

    address: WebAddress
    status: int | None
    robots: Robots


@dataclass(frozen=True, slots=True)
class RandomPathAnswer:
    """How the site answers for a page that cannot exist."""

    final_url: str | None = None
    answers_everything: bool = False
    type: SitemapType | None = None


def guessed_paths(*, full: bool) -> tuple[str, ...]:
    """Paths to try in order of yield."""
    return (USUAL_PATHS + RARE_PATHS if full else USUAL_PATHS)[:MAX_GUESSES]


def origins_of(site: WebAddress) -> Iterator[WebAddress]:
    """The origins that may answer for a site, best first."""
    for host in _hosts_of(site):
        for origin in _schemes_of(site):
            yield parse_url(origin.replace(site.host, host, 1) + "/")


def _hosts_of(site: WebAddress) -> list[str]:
    try:
        ipaddress.ip_address(site.host)
    except ValueError:
        if "." not in site.host:
            return [site.host]
        bare = bare_host(site.host)
        return [site.host, bare if site.host != bare else "www." + bare]
    return [site.host]


def _schemes_of(site: WebAddress) -> list[str]:
    fixed = site.scheme_given or (site.port_given and site.port == 443)  # noqa: PLR2004
    if fixed:
        return [site.origin]
    return [site.origin, "http" + site.origin.removeprefix("https")]


async def ask_robots(client: HttpClient, base: WebAddress, user_agent: str) -> RobotsAnswer:
    """Fetch and read robots.txt: 4xx means no rules, 5xx that the site must be left alone."""
    address = parse_url("/robots.txt", base.url)
    try:
        async with client.get(address, max_bytes=ROBOTS_WIRE_BYTES) as response:
            error = response.error()
            if isinstance(error, RateLimited):
                raise error
            if isinstance(error, ServerError):
                raise RobotsUnreachable(
                    f"robots.txt cannot be read (status {response.status}), "
                    "so the site must not be scanned now."
                )
            content = b"" if error else await _first_bytes(response, MAX_BYTES)
            robots = parse_robots(content, user_agent)
            return RobotsAnswer(response.address, response.status, robots)
    except (RedirectInvalid, RedirectLoop, TooManyRedirects):
        return RobotsAnswer(address, None, Robots())


async def _first_bytes(response: Response, count: int) -> bytes:
    """The start of a body; what a limit or a fault cuts off is done without."""
    content = bytearray()
    try:
        limits = BodyLimits(decoded_bytes=4 * ROBOTS_WIRE_BYTES)
        body = Body(response.content_encoding, Tally(), limits)
        async for chunk in response.chunks():
            for piece in body.feed(chunk):
                content += piece
            if len(content) > count:
                break
    except ScanError:
        pass
    return bytes(content)


async def ask_random_path(client: HttpClient, base: WebAddress) -> RandomPathAnswer:
    """Ask for a page that cannot exist, to know what a page that is not there looks like."""
    address = parse_url(f"/{secrets.token_hex(8)}.xml", base.url)
    try:
        async with client.get(address) as response:
            if response.error() is not None:
                return RandomPathAnswer()
            moved = response.address.url != address.url
            final_url = response.address.url if moved else None
            return RandomPathAnswer(final_url, True, await _type_of(response))
    except (ScanError, AddressError):
        return RandomPathAnswer()


async def _type_of(response: Response) -> SitemapType | None:
    try:
        reader = DocumentReader(response.content_encoding, charset_of(response))
        async for chunk in response.chunks():
            for _ in reader.feed(chunk):
                if reader.type is not None:
                    return reader.type
        for _ in reader.close():
            pass
    except ScanError:
        return None
    return reader.type


def charset_of(response: Response) -> str | None:
    """The character set that the Content-Type header names."""
    match = CHARSET.search(response.headers.get("Content-Type", ""))
    return match[1] if match else None
