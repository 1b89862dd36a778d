"""Times trafilatura: trafilatura_shapes.py KIND FILE. It gives addresses alone, and cleans them."""

from __future__ import annotations

from trafilatura.feeds import FeedParameters, extract_links  # type: ignore[import-not-found]
from trafilatura.sitemaps import SitemapObject  # type: ignore[import-not-found]

from bench.shape_timing import ADDRESS, time_reading

HOST = "www.shop.example"
BASE = f"https://{HOST}"


def read(content: bytes, kind: str) -> int:
    if kind == "feed":
        return len(extract_links(content.decode(), FeedParameters(BASE, HOST, BASE, external=True)))
    sitemap = SitemapObject(BASE, HOST, [], external=True)
    sitemap.current_url, sitemap.content = ADDRESS, content.decode()
    sitemap.process()
    return len(sitemap.urls)


if __name__ == "__main__":
    time_reading(read)
