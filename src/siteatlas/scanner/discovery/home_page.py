"""The home page of a site: which sitemaps and feeds it names, and which system made it.

Looks at the start of the page only, with searches that take linear time on any text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from siteatlas.errors import AddressError, ScanError
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.net.response import Response
from siteatlas.scanner.discovery.well_known import Cms, hints_in
from siteatlas.scanner.reading.body import Body, BodyLimits
from siteatlas.scanner.reading.tally import Tally
from siteatlas.scanner.reading.web_page import is_challenge

MAX_PAGE_BYTES = 256 * 1024
MAX_LINKS = 20
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
TAG = re.compile(r"<(link|base)\s([^<>]{1,4096})>", re.IGNORECASE)
ATTRIBUTE = re.compile(
    r"""([a-z-]{1,20})\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE
)
FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml"})
HEADER_LINK = re.compile(r"<([^<>]{1,2048})>((?:\s*;\s*[^,;\"<>]{1,100}(?:\"[^\"]{0,500}\")?)*)")
HEADER_RELATION = re.compile(r";\s*rel\s*=\s*\"?([^\";]+)", re.IGNORECASE)
TELLING_HEADERS = ("X-Powered-By", "X-Generator", "Link", "Server", "Set-Cookie")


@dataclass(frozen=True, slots=True)
class HomePage:
    """What a home page tells; links of headers are relative to `address`, all others to `base`."""

    address: WebAddress
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
        return read_home_page(response, await _start_of(response))


async def _start_of(response: Response) -> str:
    """The first text of a body; what a limit or a fault cuts off is done without."""
    content = bytearray()
    try:
        body = Body(response.content_encoding, Tally(), BodyLimits(decoded_bytes=MAX_PAGE_BYTES))
        async for chunk in response.chunks():
            for piece in body.feed(chunk):
                content += piece
    except ScanError:
        pass
    return content.decode("utf-8", "replace")


def read_home_page(response: Response, text: str) -> HomePage:
    """What the headers and the text of a home page tell."""
    page = COMMENT.sub("", text)
    headers = "\n".join(
        [*response.headers, *(v for h in TELLING_HEADERS for v in response.header_values(h))]
    )
    return HomePage(
        address=response.address,
        base=_base_of(page, response.address),
        header_links=links_of_headers(response.header_values("Link")),
        page_links=links_of_page(page, "sitemap"),
        feeds=links_of_page(page, "alternate")[:1],
        hints=hints_in(page) | hints_in(headers),
        is_challenge=is_challenge(text),
    )


def links_of_headers(values: list[str]) -> tuple[str, ...]:
    """The targets of `Link: <…>; rel="sitemap"` headers."""
    found = [
        link[1].strip()
        for value in values
        for link in HEADER_LINK.finditer(value)
        if (relation := HEADER_RELATION.search(link[2]))
        and "sitemap" in relation[1].lower().split()
    ]
    return tuple(dict.fromkeys(found))[:MAX_LINKS]


def links_of_page(page: str, relation: str) -> tuple[str, ...]:
    """The targets of `<link rel=…>` tags; those with rel=alternate only if they are feeds."""
    found: list[str] = []
    for name, attributes in _tags(page):
        href = attributes.get("href", "").strip()
        if name == "link" and href and relation in attributes.get("rel", "").lower().split():
            is_feed = attributes.get("type", "").strip().lower() in FEED_TYPES
            if is_feed or relation != "alternate":
                found.append(href)
    return tuple(dict.fromkeys(found))[:MAX_LINKS]


def _base_of(page: str, address: WebAddress) -> WebAddress:
    """What relative links of a page are relative to."""
    for name, attributes in _tags(page):
        if name == "base" and attributes.get("href"):
            try:
                return parse_url(attributes["href"], address.url)
            except AddressError:
                return address
    return address


def _tags(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    for tag in TAG.finditer(page):
        attributes = {
            match[1].lower(): html.unescape(match[2] or match[3] or match[4] or "")
            for match in ATTRIBUTE.finditer(tag[2])
        }
        yield tag[1].lower(), attributes
