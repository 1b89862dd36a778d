"""Times ultimate-sitemap-parser: usp_shapes.py KIND FILE. It reads images, news, languages too."""

from __future__ import annotations

from usp.fetch_parse import PlainTextSitemapParser, XMLSitemapParser
from usp.web_client.requests_client import RequestsWebClient

from bench.shape_timing import ADDRESS, time_reading


def read(content: bytes, kind: str) -> int:
    parser = PlainTextSitemapParser if kind == "text" else XMLSitemapParser
    sitemap = parser(ADDRESS, content.decode(), 0, RequestsWebClient(), set()).sitemap()
    return sum(1 for _ in sitemap.all_pages())


if __name__ == "__main__":
    time_reading(read)
