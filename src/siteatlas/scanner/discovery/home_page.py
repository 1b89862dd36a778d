"""The home page of a site: which sitemaps and feeds it names, and which system made it.

Only the start of the page is looked at. The system, and what is most common, give the paths where a
sitemap may be although nothing names it; `site_scan.py` requests them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from siteatlas.errors import AddressError, ScanError
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.net.response import Response
from siteatlas.scanner.reading.decoding import Body, BodyLimits
from siteatlas.scanner.reading.entries import Tally
from siteatlas.scanner.reading.head import Tag, read_page

MAX_PAGE_BYTES = 256 * 1024
MAX_LINKS = 20


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
        # A longer page is read in a thread, since its tags may take tens of milliseconds.
        if len(text) <= 8 * 1024:
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
    telling = ("X-Powered-By", "X-Generator", "Link", "Server", "Set-Cookie")
    values = (value for name in telling for value in response.header_values(name))
    headers = "\n".join([*response.headers, *values])
    return HomePage(
        base=_base_address(tags, response.address),
        header_links=sitemaps_of_headers(response),
        page_links=links_of_page(tags, "sitemap"),
        feeds=links_of_page(tags, "alternate")[:1],
        hints=hints_in(replace_comments("", text)) | hints_in(headers),
        is_challenge=is_challenge,
    )


replace_comments = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL).sub


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
            media_type = attributes.get("type", "").strip().lower()
            is_feed = media_type in {"application/rss+xml", "application/atom+xml"}
            if is_feed or relation != "alternate":
                found.append(href)
    return tuple(dict.fromkeys(found))[:MAX_LINKS]


def _base_address(tags: Sequence[Tag], address: WebAddress) -> WebAddress:
    for name, attributes in tags:
        if name == "base" and attributes.get("href"):
            try:
                return parse_url(attributes["href"], address.url)
            except AddressError:
                return address
    return address


# The names that sitemaps and feeds have as files.
_file_name = re.compile(r"[^/]\.(?:xml|txt|rss|atom|rdf|gz)\Z", re.IGNORECASE).search


def names_document(path: str) -> bool:
    """Whether a path (with its query) has the name of a sitemap document, not that of a page."""
    return _file_name(path.partition("?")[0]) is not None


def guessed_paths(hints: Collection[Cms] = ()) -> tuple[str, ...]:
    """All paths to guess: the first ones, then the paths of the detected systems, then the rest."""
    hinted = [path for cms in Cms if cms in hints for path in PATHS_OF_CMS[cms]]
    late = [path for paths in PATHS_OF_CMS.values() for path in paths]
    feeds = ("/feed", "/rss.xml", "/atom.xml", "/feed.xml")
    last = ("/.sitemap.xml", *feeds, "/.well-known/resourcesync")
    return tuple(dict.fromkeys((*USUAL_PATHS[:2], *hinted, *USUAL_PATHS, *late, *last)))


def hints_in(text: str) -> frozenset[Cms]:
    """The systems whose signs are in a page or in the headers of a response."""
    text = text.lower()
    return frozenset(cms for cms, signs in SIGNS.items() if any(sign in text for sign in signs))


class Cms(StrEnum):
    """Systems that have their sitemaps at non-standard paths."""

    PRESTASHOP = "prestashop"
    MAGENTO = "magento"
    WORDPRESS = "wordpress"
    SHOPIFY = "shopify"
    WIX = "wix"
    BIGCOMMERCE = "bigcommerce"
    NEXT = "next"
    NUXT = "nuxt"
    GHOST = "ghost"
    DRUPAL = "drupal"
    VBULLETIN = "vbulletin"


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
PATHS_OF_CMS: dict[Cms, tuple[str, ...]] = {
    Cms.PRESTASHOP: ("/1_index_sitemap.xml",),
    Cms.MAGENTO: (
        "/media/sitemap/sitemap.xml",
        "/pub/sitemap.xml",
        "/catalog/sitemaps/catalog.xml",
    ),
    Cms.WORDPRESS: (
        "/wp-sitemap.xml",
        "/post-sitemap.xml",
        "/page-sitemap.xml",
        "/product-sitemap.xml",
        "/category-sitemap.xml",
        "/wp-sitemap-posts-post-1.xml",
        "/sitemap-posts-post-1.xml",
        "/sitemap-pages-post-1.xml",
        "/sitemap-categories-1.xml",
        "/feed",
    ),
    Cms.SHOPIFY: ("/sitemap_products_1.xml",),
    Cms.WIX: ("/store-products-sitemap.xml", "/products-sitemap.xml"),
    Cms.BIGCOMMERCE: ("/xmlsitemap.php",),
    Cms.NEXT: ("/sitemap-0.xml", "/server-sitemap.xml"),
    Cms.NUXT: ("/sitemapindex.xml",),
    Cms.GHOST: ("/sitemap-posts.xml", "/sitemap-pages.xml", "/rss/"),
    Cms.DRUPAL: ("/rss.xml",),
    Cms.VBULLETIN: ("/core/xmlsitemap.php",),
}
# What a system calls itself, or leaves in the links of its pages, in lower case.
SIGNS: dict[Cms, tuple[str, ...]] = {
    Cms.PRESTASHOP: ("prestashop",),
    Cms.MAGENTO: ("magento", *(f"/static/version{n}" for n in range(10)), "mage/cookies"),
    Cms.WORDPRESS: ("wordpress", "/wp-content/", "/wp-json/", "/wp-includes/"),
    Cms.SHOPIFY: ("cdn.shopify.com", "myshopify.com", "x-shopify", "x-shopid"),
    Cms.WIX: ("wix.com", "wixstatic.com", "x-wix-"),
    Cms.BIGCOMMERCE: ("bigcommerce",),
    Cms.NEXT: ("/_next/", "next.js"),
    Cms.NUXT: ("/_nuxt/", "nuxt"),
    Cms.GHOST: ('content="ghost ', "content='ghost ", "x-ghost-", "/ghost/api/"),
    Cms.DRUPAL: ("drupal", "/sites/default/files/"),
    Cms.VBULLETIN: ("vbulletin",),
}
