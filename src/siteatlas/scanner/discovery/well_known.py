"""Common sitemap paths, most common first, and those of particular software.

Knows paths and how to recognize the software; `origin_search.py` requests them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum

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
FIRST_PATHS = USUAL_PATHS[:2]


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
LAST_PATHS = (
    *("/.sitemap.xml", "/feed", "/rss.xml", "/atom.xml", "/feed.xml"),
    "/.well-known/resourcesync",
)

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


# The names that sitemaps and feeds have as files.
DOCUMENT_NAME = re.compile(r"[^/]\.(?:xml|txt|rss|atom|rdf|gz)\Z", re.IGNORECASE)


def names_document(path: str) -> bool:
    """Whether a path (with its query) has the name of a sitemap document, not that of a page."""
    return DOCUMENT_NAME.search(path.partition("?")[0]) is not None


def hints_in(text: str) -> frozenset[Cms]:
    """The systems whose signs are in a page or in the headers of a response."""
    text = text.lower()
    return frozenset(cms for cms, signs in SIGNS.items() if any(sign in text for sign in signs))


def guessed_paths(hints: Collection[Cms] = ()) -> tuple[str, ...]:
    """All paths to guess: the first ones, then the paths of the detected systems, then the rest."""
    hinted = [path for cms in Cms if cms in hints for path in PATHS_OF_CMS[cms]]
    late = [path for paths in PATHS_OF_CMS.values() for path in paths]
    return tuple(dict.fromkeys((*FIRST_PATHS, *hinted, *USUAL_PATHS, *late, *LAST_PATHS)))
