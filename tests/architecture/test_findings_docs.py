"""The reference of findings is written from the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import findings_page
from siteatlas.findings.rules import all_rules


@pytest.mark.criterion("docs-correct")
def test_the_reference_of_findings_is_up_to_date(project: Path):
    page = (project / "docs" / "reference" / "findings.md").read_text(encoding="utf-8")
    assert page == findings_page(), "run: make docs"


def test_the_reference_explains_every_rule():
    page = findings_page()
    assert [rule.code for rule in all_rules().values() if f"## {rule.code}\n" not in page] == []
