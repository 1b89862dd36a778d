"""Reads the corpus with Siteatlas: our_documents.py < questions."""

from __future__ import annotations

from bench.readings import Answer, Question, answer_all, fetch
from siteatlas.errors import ScanError
from siteatlas.net.address import parse_url
from siteatlas.scanner.discovery.robots import parse_robots
from siteatlas.scanner.reading.document import DocumentReader


def read(question: Question) -> Answer:
    content = fetch(question.url)
    if question.kind == "robots":
        return Answer(children=full(parse_robots(content).sitemaps, question))
    answer = Answer()
    reader = DocumentReader(base_url=question.original_url)
    try:
        for read_results in (reader.feed(content), reader.close()):
            for read_result in read_results:
                answer.pages += read_result.columns.urls
                answer.children += full([child.url for child in read_result.children], question)
    except ScanError as error:
        answer.error = error.code
    return answer


def full(urls: list[str] | tuple[str, ...], question: Question) -> list[str]:
    """The addresses that a scan would follow."""
    return [url if "://" in url else parse_url(url, question.original_url).url for url in urls]


if __name__ == "__main__":
    answer_all(read)
