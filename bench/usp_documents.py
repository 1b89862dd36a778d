"""Reads the corpus with ultimate-sitemap-parser: usp_documents.py < questions.

Its own client fetches from loopback; children are noted and not followed, through its callback.
"""

from __future__ import annotations

from usp.fetch_parse import SitemapFetcher

from bench.readings import Answer, Question, answer_all


def read(question: Question) -> Answer:
    children: list[str] = []

    def note(urls: list[str], _level: int, _parents: set[str]) -> list[str]:
        children.extend(urls)
        return []

    sitemap = SitemapFetcher(question.url, 0, recurse_list_callback=note).sitemap()
    return Answer(pages=[page.url for page in sitemap.all_pages()], children=children)


if __name__ == "__main__":
    answer_all(read)
