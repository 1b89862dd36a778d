"""Reads a site with Scrapy's sitemap parser and fails unless it finds the expected pages.

Runs inside the environment of the peers, one file after the other: scrapy_pages.py BASE_URL PAGES
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from urllib.request import urlopen

from scrapy.utils.gz import gunzip  # type: ignore[import-not-found]
from scrapy.utils.sitemap import (  # type: ignore[import-not-found]
    Sitemap,
    sitemap_urls_from_robots,
)

GZIP_MAGIC = b"\x1f\x8b\x08"


def fetch(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:  # noqa: S310 - our own address
        return bytes(answer.read())


def pages(url: str) -> Iterator[str]:
    """The pages of a sitemap and of all its children."""
    body = fetch(url)
    sitemap = Sitemap(gunzip(body) if body.startswith(GZIP_MAGIC) else body)
    for entry in sitemap:
        if sitemap.type == "sitemapindex":
            yield from pages(entry["loc"])
        else:
            yield entry["loc"]


def main() -> None:
    base_url, expected = sys.argv[1], int(sys.argv[2])
    robots = f"{base_url}/robots.txt"
    sitemaps = sitemap_urls_from_robots(fetch(robots), robots)
    found = sum(1 for url in sitemaps for _ in pages(url))
    if found != expected:
        raise SystemExit(f"found {found} pages, not {expected}")


if __name__ == "__main__":
    main()
