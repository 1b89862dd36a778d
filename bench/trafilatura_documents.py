"""Reads the corpus with trafilatura: trafilatura_documents.py < questions.

It refuses loopback and addresses of other hosts by default; both are allowed here. It cleans every
address, so the expected ones are cleaned the same way before they are compared.
"""

from __future__ import annotations

from copy import deepcopy
from urllib.parse import urlsplit

from courlan import clean_url  # type: ignore[import-not-found]
from trafilatura.downloads import fetch_url  # type: ignore[import-not-found]
from trafilatura.feeds import FeedParameters, extract_links  # type: ignore[import-not-found]
from trafilatura.settings import DEFAULT_CONFIG  # type: ignore[import-not-found]
from trafilatura.sitemaps import SitemapObject, extract_robots_sitemaps  # type: ignore[import-not-found]

from bench.readings import Answer, Question, answer_all

CONFIG = deepcopy(DEFAULT_CONFIG)
CONFIG["DEFAULT"]["SSRF_PROTECTION"] = "off"
CONFIG["DEFAULT"]["MIN_FILE_SIZE"] = "1"


def read(question: Question) -> Answer:
    answer = Answer(forms={url: clean_url(url) or url for url in question.expected})
    parts = urlsplit(question.original_url)
    base = f"{parts.scheme}://{parts.netloc}"
    if question.kind == "robots":
        answer.children = extract_robots_sitemaps(fetch_url(question.url, config=CONFIG), base)
        answer.forms = {}
    elif question.kind == "feed":
        feed = FeedParameters(base, parts.netloc, base, external=True)
        answer.pages = extract_links(fetch_url(question.url, config=CONFIG) or "", feed)
    else:
        sitemap = SitemapObject(base, parts.netloc, [], external=True, config=CONFIG)
        sitemap.current_url = question.url
        sitemap.fetch()
        sitemap.process()
        answer.pages, answer.children = sitemap.urls, sitemap.sitemap_urls
    return answer


if __name__ == "__main__":
    answer_all(read)
