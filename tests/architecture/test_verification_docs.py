"""Every test that docs/verification.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fixtures.named_tests import functions_of

TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.fixture(scope="module")
def named_tests(project: Path) -> set[tuple[str, str]]:
    """File and function of each test id on the page."""
    page = (project / "docs" / "verification.md").read_text(encoding="utf-8")
    return set(TEST_ID.findall(page))


def test_every_test_that_the_page_names_exists(
    project: Path, named_tests: set[tuple[str, str]]
) -> None:
    known = {file: functions_of(project / file) for file, _ in named_tests}
    missing = sorted(f"{file}::{name}" for file, name in named_tests if name not in known[file])
    assert missing == []


def test_the_page_names_tests(named_tests: set[tuple[str, str]]) -> None:
    assert named_tests
