"""Files are small, named after what they hold, and say so in their first lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE_FOLDERS = ("src", "bench", "docs", "scripts", "tests")
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50


@pytest.fixture(scope="module")
def sources(project: Path) -> dict[str, str]:
    """The text of every Python file, by its path in the checkout."""
    files = [file for folder in SOURCE_FOLDERS for file in (project / folder).rglob("*.py")]
    return {str(file.relative_to(project)): file.read_text(encoding="utf-8") for file in files}


def long_functions(source: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]


def test_a_file_is_named_after_what_it_holds(sources: dict[str, str]):
    names = {path: set(Path(path).with_suffix("").parts) for path in sources}
    words = {path: {w for part in parts for w in part.split("_")} for path, parts in names.items()}
    assert [path for path in sources if words[path] & EMPTY_NAMES] == []


def test_a_file_has_at_most_400_lines(sources: dict[str, str]):
    lengths = {
        path: len(source.splitlines())
        for path, source in sources.items()
        if "migrations/" not in path
    }
    assert {path: n for path, n in lengths.items() if n > MAX_FILE_LINES} == {}


@pytest.mark.slow
def test_a_function_has_at_most_50_lines(sources: dict[str, str]):
    long = {
        path: found
        for path, source in sources.items()
        if "migrations/" not in path and (found := long_functions(source))
    }
    assert long == {}


@pytest.mark.slow
def test_a_module_says_what_it_owns(sources: dict[str, str]):
    trees = {path: ast.parse(source) for path, source in sources.items()}
    silent = [path for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []
