"""The reference of problems is written from the codes, and each code has one meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import problems_page
from siteatlas.errors import UrlLimitReached, error_classes
from siteatlas.scanner.problem_codes import ProblemCode


@pytest.mark.criterion("docs-correct")
def test_the_reference_of_problems_is_up_to_date(project: Path):
    page = (project / "docs" / "reference" / "problems.md").read_text(encoding="utf-8")
    assert page == problems_page(), "run: make docs"


def test_the_reference_lists_every_code_of_the_scanner():
    page = problems_page()
    assert [code for code in ProblemCode if f"| `{code}` | {code.meaning} |" not in page] == []


def test_a_code_is_a_problem_or_an_error_but_for_the_limit_that_is_both():
    errors = {cls.code for cls in error_classes()}
    assert errors & set(ProblemCode) == {UrlLimitReached.code}
