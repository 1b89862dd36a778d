"""Reads the corpus with advertools: advertools_documents.py < questions.

`sitemap_to_df` fetches from loopback and does not follow children. For robots.txt the step that
`sitemap_to_df` takes first is called alone, so that nothing is fetched from elsewhere.
"""

from __future__ import annotations

from advertools.sitemaps import _sitemaps_from_robotstxt, headers, sitemap_to_df  # type: ignore[import-not-found]

from bench.readings import Answer, Question, answer_all


def read(question: Question) -> Answer:
    if question.kind == "robots":
        return Answer(either=_sitemaps_from_robotstxt(question.url, headers))
    table = sitemap_to_df(question.url, recursive=False)
    return Answer(either=list(table["loc"].dropna()) if "loc" in table else [])


if __name__ == "__main__":
    answer_all(read)
