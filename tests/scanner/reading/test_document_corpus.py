"""Our reader against the corpus: hundreds of small documents with what their authors meant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from siteatlas.net.address import parse_url
from siteatlas.scanner.discovery.robots import parse_robots
from tests.corpus.build import documents
from tests.corpus.cases import CORPUS, ORIGIN, Case, load_cases
from tests.fixtures.documents import ReadDocument, read

CASES = load_cases()
KNOWN_GAPS: dict[str, str] = {}


def parameters(cases: Sequence[Case]) -> list[object]:
    return [pytest.param(case, id=case.id, marks=gap_marks(case)) for case in cases]


def gap_marks(case: Case) -> list[pytest.MarkDecorator]:
    reason = KNOWN_GAPS.get(case.id)
    return [pytest.mark.xfail(reason=reason, strict=True)] if reason else []


def absolute(url: str, base: str) -> str:
    return url if "://" in url else parse_url(url, base).url


def outcome_of(document: ReadDocument) -> str:
    if document.error is None:
        return "complete"
    return "cut" if document.urls or document.children else "unread"


def dates_of(document: ReadDocument, base: str) -> dict[str, datetime | None]:
    dates = dict(zip(document.urls, document.columns.lastmods, strict=True))
    return dates | {absolute(child.url, base): child.lastmod for child in document.children}


def column(document: ReadDocument, name: str) -> dict[str, object]:
    return dict(zip(document.urls, getattr(document.columns, name), strict=True))


@pytest.mark.parametrize("chunk", [7, 65536])
@pytest.mark.parametrize("case", parameters([case for case in CASES if case.kind != "robots"]))
def test_reads_what_the_author_meant(case, chunk):
    content, base = case.file.read_bytes(), ORIGIN + case.path
    chunks = [content[at : at + chunk] for at in range(0, len(content), chunk)]
    document = read(chunks, base_url=base)
    expected = case.expected
    assert document.urls == expected["urls"]
    assert [absolute(child.url, base) for child in document.children] == expected.get(
        "children", []
    )
    if "outcome" in expected:
        assert (outcome_of(document), document.error_code) == (
            expected["outcome"],
            expected.get("error_code"),
        )
    dates = dates_of(document, base)
    for url, lastmod in expected.get("lastmods", {}).items():
        assert dates[url] == (datetime.fromisoformat(lastmod) if lastmod else None), url
    for name in ("priorities", "changefreqs"):
        values = column(document, name)
        for url, value in expected.get(name, {}).items():
            assert values[url] == value, url


@pytest.mark.parametrize("case", parameters([case for case in CASES if case.kind == "robots"]))
def test_finds_the_sitemaps_that_robots_txt_names(case):
    robots = parse_robots(case.file.read_bytes())
    found = [absolute(url, f"{ORIGIN}/robots.txt") for url in robots.sitemaps]
    assert found == case.expected["sitemaps"]


def test_the_corpus_is_large_and_every_case_has_a_description():
    assert len(CASES) >= 80
    assert [case.id for case in CASES if not case.expected["description"].endswith(".")] == []


def test_building_the_corpus_gives_the_same_bytes():
    built = documents()
    assert [path for path in built if (CORPUS / path).read_bytes() != built[path]] == []


def test_every_document_has_its_expectation():
    documents = (file for file in CORPUS.glob("*/*") if file.parent.name != "__pycache__")
    files = {file for file in documents if not file.name.endswith(".expected.json")}
    assert files == {case.file for case in CASES}


def test_every_known_gap_names_a_case():
    assert KNOWN_GAPS.keys() <= {case.id for case in CASES}
