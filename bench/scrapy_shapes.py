"""Times Scrapy's sitemap parser: scrapy_shapes.py KIND FILE.

It reads urlsets alone, of their extensions the addresses of language links.
"""

from __future__ import annotations

from scrapy.utils.sitemap import Sitemap  # type: ignore[import-not-found]

from bench.shape_timing import time_reading


def read(content: bytes, kind: str) -> int:
    if kind != "pages":
        return 0
    return sum(1 for entry in Sitemap(content) if entry["loc"])


if __name__ == "__main__":
    time_reading(read)
