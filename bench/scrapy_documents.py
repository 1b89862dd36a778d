"""Reads the corpus with Scrapy's sitemap parser: scrapy_documents.py < questions.

Does what its SitemapSpider does with a response: gunzip by the magic number, then parse.
"""

from __future__ import annotations

from scrapy.utils.gz import gunzip  # type: ignore[import-not-found]
from scrapy.utils.sitemap import Sitemap, sitemap_urls_from_robots  # type: ignore[import-not-found]

from bench.readings import Answer, Question, answer_all, fetch

GZIP_MAGIC = b"\x1f\x8b\x08"


def read(question: Question) -> Answer:
    body = fetch(question.url)
    if question.kind == "robots":
        return Answer(children=list(sitemap_urls_from_robots(body, question.original_url)))
    sitemap = Sitemap(gunzip(body) if body.startswith(GZIP_MAGIC) else body)
    urls = [entry["loc"] for entry in sitemap if entry["loc"]]
    match sitemap.type:
        case "sitemapindex":
            return Answer(children=urls)
        case "urlset":
            return Answer(pages=urls)
        case _:
            return Answer(error=f"the root is {sitemap.type}")


if __name__ == "__main__":
    answer_all(read)
