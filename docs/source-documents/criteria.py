"""The verification page: the criteria of `criteria.toml`, each with the tests marked with its id.

A test is marked with `@pytest.mark.criterion("id")`. Tests are found by reading their source, so
that writing the page needs no PostgreSQL and imports no test.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PROJECT = FOLDER.parent.parent
REGISTRY = FOLDER / "criteria.toml"

INTRO = """\
# Verification

What Siteatlas was asked to do, and the tests that show that it does. Each criterion is restated
here, so the page needs no other document; the last column gives the place it comes from. Five
source documents asked for it: 13.3 and 13.7 (work orders for the scheduler), 13.6 (the
architecture of producer, queue, consumer and processor), 13.9 (creating jobs) and 07-69 (a work
order for database sessions of background work). A criterion that several of them repeat is listed
once.

"Differently" marks a criterion that Siteatlas meets in another way, and says how.
Run one test with `make test ARGS=<id>`.

`make mutations` makes the code wrong in one place at a time (`tests/mutations/cases.py`) and
expects a test to fail each time. When all tests last ran, and with which result:
[reports](reports/13.8-SITEMAP-SCHEDULER-INTEGRATION-COMPLETION.md#5-testing-results).

This page is written by `make docs` from `criteria.toml` and from the tests that carry
`@pytest.mark.criterion`.
"""


@dataclass(frozen=True)
class Criterion:
    """One thing that was asked for: `text` says what, `origin` where."""

    id: str
    text: str
    origin: tuple[str, ...]
    differently: str = ""
    also: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Subject:
    """A section of the page."""

    title: str
    criteria: tuple[Criterion, ...]


@dataclass
class Evidence:
    """Which tests are marked with which id, in the order of files and lines."""

    tests: dict[str, list[str]] = field(default_factory=dict)

    def of(self, criterion: Criterion) -> list[str]:
        return self.tests.get(criterion.id, [])


def load_subjects(registry: Path = REGISTRY) -> list[Subject]:
    """The sections of the registry."""
    data = tomllib.loads(registry.read_text(encoding="utf-8"))
    return [
        Subject(subject["title"], tuple(map(_criterion, subject["criterion"])))
        for subject in data["subject"]
    ]


def _criterion(data: dict[str, Any]) -> Criterion:
    lists = {name: tuple(data.get(name, ())) for name in ("origin", "also")}
    return Criterion(**(data | lists))


def collect_evidence(project: Path = PROJECT) -> Evidence:
    """Read the markers of all tests below a project."""
    evidence = Evidence()
    for file in sorted((project / "tests").rglob("test_*.py")):
        source = file.read_text(encoding="utf-8")
        if "mark.criterion" not in source:
            continue
        for node in ast.parse(source).body:
            for criterion_id in _marked_ids(node):
                test = f"{file.relative_to(project)}::{getattr(node, 'name', '')}"
                evidence.tests.setdefault(criterion_id, []).append(test)
    return evidence


def _marked_ids(node: ast.stmt) -> Iterator[str]:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(
            "mark.criterion"
        ):
            yield from (ast.literal_eval(argument) for argument in decorator.args)


def faults(subjects: list[Subject], evidence: Evidence) -> list[str]:
    """What keeps the page from being complete: one sentence per fault."""
    criteria = [criterion for subject in subjects for criterion in subject.criteria]
    ids = [criterion.id for criterion in criteria]
    found = [f"{one} is listed twice" for one in sorted({one for one in ids if ids.count(one) > 1})]
    found += [
        f"{criterion.id} has neither a test nor a reason"
        for criterion in criteria
        if not evidence.of(criterion) and not criterion.reason
    ]
    found += [
        f"{test} is marked with {one}, which criteria.toml does not list"
        for one in sorted(set(evidence.tests) - set(ids))
        for test in evidence.tests[one]
    ]
    return found


def verification_page() -> str:
    """The whole text of verification.md."""
    subjects, evidence = load_subjects(), collect_evidence()
    if problems := faults(subjects, evidence):
        sys.exit("criteria.toml and the tests disagree:\n" + "\n".join(problems))
    return "\n".join([INTRO, *(_section(subject, evidence) for subject in subjects)])


def _section(subject: Subject, evidence: Evidence) -> str:
    lines = [f"## {subject.title}", "", "| criterion | shown by | origin |", "|---|---|---|"]
    lines += [_row(criterion, evidence.of(criterion)) for criterion in subject.criteria]
    return "\n".join(lines) + "\n"


def _row(criterion: Criterion, tests: list[str]) -> str:
    text = criterion.text
    if criterion.differently:
        text += f"<br>Differently: {criterion.differently}"
    shown_by = [f"`{test}`" for test in tests]
    shown_by += criterion.also
    shown_by += [criterion.reason] if criterion.reason else []
    return f"| {text} | {'<br>'.join(shown_by)} | {'; '.join(criterion.origin)} |"
