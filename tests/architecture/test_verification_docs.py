"""The verification page lists every criterion with the tests that are marked with it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

# An import statement cannot name a folder with a hyphen.
criteria = import_module("docs.source-documents.criteria")

MARKED = """\
@pytest.mark.parametrize("a", [1])
@pytest.mark.criterion("first", "second")
async def test_one(a): ...

@pytest.mark.slow
def test_two(): ...
"""


@pytest.fixture
def project_with_a_test(tmp_path: Path) -> Path:
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (folder / "test_some.py").write_text(MARKED, encoding="utf-8")
    return tmp_path


@pytest.mark.criterion("docs-correct")
def test_the_page_is_up_to_date(project: Path):
    page = (project / "docs" / "source-documents" / "verification.md").read_text(encoding="utf-8")
    assert page == criteria.verification_page(), "run: make docs"


def test_every_criterion_has_a_test_or_a_reason():
    assert criteria.faults(criteria.load_subjects(), criteria.collect_evidence()) == []


def test_the_check_sees_a_criterion_without_a_test_and_an_unknown_id(project_with_a_test: Path):
    listed = (
        criteria.Criterion("first", "Shown.", ("13.3",)),
        criteria.Criterion("third", "Not shown.", ("13.3",)),
        criteria.Criterion("fourth", "Not shown.", ("13.3",), reason="Not applicable."),
    )
    found = criteria.faults(
        [criteria.Subject("Some", listed)], criteria.collect_evidence(project_with_a_test)
    )
    assert [line.split(" ")[0] for line in found] == ["third", "tests/unit/test_some.py::test_one"]
    assert "second" in found[1]


def test_markers_are_found_at_any_place_among_the_decorators(project_with_a_test: Path):
    expected = ["tests/unit/test_some.py::test_one"]
    evidence = criteria.collect_evidence(project_with_a_test)
    assert evidence.tests == {"first": expected, "second": expected}


def test_every_criterion_says_what_was_asked_and_where():
    listed = [criterion for subject in criteria.load_subjects() for criterion in subject.criteria]
    assert [one.id for one in listed if not one.text.endswith(".") or not one.origin] == []
    assert {origin.split()[0] for one in listed for origin in one.origin} == {
        "13.3",
        "13.6",
        "13.7",
        "13.9",
        "07-69",
    }
