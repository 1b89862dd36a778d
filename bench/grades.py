"""Grades what a reader found in a document of the corpus, and counts the grades."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from bench.readings import Answer
from tests.corpus.cases import ORIGIN, Case


class Grade(StrEnum):
    """`exact`: all that is listed, nothing else. `part`: some of it, nothing else.

    `wrong`: something that is not listed. `fails`: nothing.
    """

    EXACT = "exact"
    PART = "part"
    WRONG = "wrong"
    FAILS = "fails"


def grade(case: Case, answer: Answer, base_url: str) -> Grade:
    """Compare sets: order and repetition do not count."""
    expected = _expected(case, answer)
    found = _found(answer, base_url)
    if found - expected:
        return Grade.WRONG
    if case.expected.get("outcome") == "unread":
        return Grade.EXACT
    if not found:
        return Grade.FAILS if expected or answer.error else Grade.EXACT
    return Grade.EXACT if found == expected else Grade.PART


def exact_by_topic(cases: Sequence[Case], grades: Mapping[str, Grade]) -> Counter[str]:
    """How many documents of each topic were read exactly."""
    return Counter(case.topic for case in cases if grades[case.id] is Grade.EXACT)


def _expected(case: Case, answer: Answer) -> set[tuple[str, str]]:
    if answer.either:
        return {("either", url) for url in case.addresses}
    children = [*case.expected.get("sitemaps", ()), *case.expected.get("children", ())]
    pages = case.expected.get("urls", ())
    return {("page", answer.forms.get(url, url)) for url in pages} | {
        ("child", answer.forms.get(url, url)) for url in children
    }


def _found(answer: Answer, base_url: str) -> set[tuple[str, str]]:
    kinds = {"page": answer.pages, "child": answer.children, "either": answer.either}
    return {
        (kind, url.replace(base_url, ORIGIN) if url.startswith(base_url) else url)
        for kind, urls in kinds.items()
        for url in urls
    }
