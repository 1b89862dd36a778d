"""Every code that documents and scans may carry is listed in the reference."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from siteatlas.scanner.crawl.crawl import LIMITS
from siteatlas.scanner.problem_codes import CANDIDATE, MEANINGS

# Calls whose text arguments are codes, and functions whose text results are.
CALLS = frozenset(
    {"note", "skip", "report_problem", "ProblemSeen", "ValueColumn", "DateColumn", "_note"}
)
FUNCTIONS = frozenset({"fault_of_url", "_judge", "add"})


def name_of(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))


def texts_of(*nodes: ast.AST | None) -> Iterator[str]:
    """The texts that these expressions can be; those that they only look up are none."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.IfExp):
            yield from texts_of(node.body, node.orelse)


def codes_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node) in CALLS:
            yield from texts_of(*node.args)
        elif isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS:
            returns = (one for one in ast.walk(node) if isinstance(one, ast.Return))
            yield from texts_of(*(one.value for one in returns))


@pytest.fixture(scope="module")
def codes(project: Path) -> set[str]:
    """The codes of the scanner."""
    files = (project / "src" / "siteatlas" / "scanner").rglob("*.py")
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return {code for tree in trees for code in codes_in(tree)} | LIMITS


def test_every_code_of_the_scanner_has_a_meaning(codes: set[str]):
    assert sorted(codes - set(MEANINGS) - set(CANDIDATE)) == []


@pytest.mark.criterion("docs-correct")
def test_the_reference_lists_every_code_of_the_scanner(project: Path, codes: set[str]):
    page = (project / "docs" / "reference" / "problems.md").read_text(encoding="utf-8")
    assert [code for code in sorted(codes) if f"| `{code}` |" not in page] == []


def test_codes_are_found_in_every_way_they_are_written(codes: set[str]):
    written = {"extras_cut", "entry_malformed", "robots_truncated", "lastmod_invalid"}
    assert written | {"loc_missing", "private_host", "cross_host", "url_limit"} <= codes
