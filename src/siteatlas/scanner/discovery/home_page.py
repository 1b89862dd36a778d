"""The home page of a site: which sitemaps and feeds it names, and which system made it.

Looks at the start of the page only. HTML and `Link` headers are read by lxml and aiohttp.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from siteatlas.errors import AddressError, ScanError
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.net.response import Response
from siteatlas.scanner.discovery.well_known import Cms, hints_in
from siteatlas.scanner.reading.body import Body, BodyLimits
from siteatlas.scanner.reading.tally import Tally
from siteatlas.scanner.reading.web_page import Tag, read_page

MAX_PAGE_BYTES = 256 * 1024
# A longer page is read in a thread, since its tags may take tens of milliseconds.
CHARS_READ_AT_ONCE = 8 * 1024
MAX_LINKS = 20
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml"})
TELLING_HEADERS = ("X-Powered-By", "X-Generator", "Link", "Server", "Set-Cookie")


@dataclass(frozen=True, slots=True)
class HomePage:
    """The links and hints of a home page; only links of headers are absolute URLs."""

    base: WebAddress
    header_links: tuple[str, ...] = ()
    page_links: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    hints: frozenset[Cms] = frozenset()
    is_challenge: bool = False


async def fetch_home_page(client: HttpClient, base: WebAddress) -> HomePage:
    """Fetch the home page and read its start; raises when it does not answer with a page."""
    async with client.get(base, max_bytes=MAX_PAGE_BYTES) as response:
        error = response.error()
        if error is not None:
            raise error
        text = await _read_start(response)
        if len(text) <= CHARS_READ_AT_ONCE:
            return read_home_page(response, text)
        return await asyncio.to_thread(read_home_page, response, text)


async def _read_start(response: Response) -> str:
    """The first text of a body; what a limit or a fault cuts off is done without."""
    content = bytearray()
    try:
        body = Body(response.content_encoding, Tally(), BodyLimits(decoded_bytes=MAX_PAGE_BYTES))
        async for chunk in response.chunks():
            for decoded in body.feed(chunk):
                content += decoded
    except ScanError:
        pass
    return content.decode("utf-8", "replace")


def read_home_page(response: Response, text: str) -> HomePage:
    """Read the headers and the text of a home page."""
    tags, _title, is_challenge = read_page(text, "link", "base")
    headers = "\n".join(
        [*response.headers, *(v for h in TELLING_HEADERS for v in response.header_values(h))]
    )
    return HomePage(
        base=_base_address(tags, response.address),
        header_links=sitemaps_of_headers(response),
        page_links=links_of_page(tags, "sitemap"),
        feeds=links_of_page(tags, "alternate")[:1],
        hints=hints_in(COMMENT.sub("", text)) | hints_in(headers),
        is_challenge=is_challenge,
    )


def sitemaps_of_headers(response: Response) -> tuple[str, ...]:
    """The targets of `Link: <…>; rel="sitemap"` headers."""
    found = [url for relations, url in response.links if "sitemap" in relations]
    return tuple(dict.fromkeys(found))[:MAX_LINKS]


def links_of_page(tags: Sequence[Tag], relation: str) -> tuple[str, ...]:
    """The targets of `<link rel=…>` tags; those with rel=alternate only if they are feeds."""
    found: list[str] = []
    for name, attributes in tags:
        href = attributes.get("href", "").strip()
        if name == "link" and href and relation in attributes.get("rel", "").lower().split():
            is_feed = attributes.get("type", "").strip().lower() in FEED_TYPES
            if is_feed or relation != "alternate":
                found.append(href)
    return tuple(dict.fromkeys(found))[:MAX_LINKS]


def _base_address(tags: Sequence[Tag], address: WebAddress) -> WebAddress:
    """What relative links of a page are relative to."""
    for name, attributes in tags:
        if name == "base" and attributes.get("href"):
            try:
                return parse_url(attributes["href"], address.url)
            except AddressError:
                return address
    return address
