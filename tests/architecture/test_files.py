"""Files tell one story each, are named after it, and say so in their first lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE_FOLDERS = ("src", "bench", "docs", "scripts", "tests")
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
# CONTRIBUTING.md says about 900: nobody divides a file because of its last few lines.
MAX_LINES = 950
FEW_LINES = 5


def dotted(file: Path, project: Path) -> str:
    """The name by which a file is imported, in the package or from the checkout."""
    parts = file.relative_to(project).with_suffix("").parts
    return ".".join(part for part in parts if part not in {"src", "__init__"})


def too_long(sources: dict[str, str]) -> list[str]:
    lengths = {name: len(source.splitlines()) for name, source in sources.items()}
    return [
        f"{name} has {lines} lines, at most {MAX_LINES} are allowed: it tells more than one story"
        for name, lines in lengths.items()
        if lines > MAX_LINES
    ]


def without_introduction(sources: dict[str, str]) -> list[str]:
    return [
        name
        for name, source in sources.items()
        if len(source.splitlines()) > FEW_LINES and not ast.get_docstring(ast.parse(source))
    ]


@pytest.fixture(scope="module")
def sources(project: Path) -> dict[str, str]:
    """The text of every Python file but the migrations, by its dotted name."""
    files = [file for folder in SOURCE_FOLDERS for file in (project / folder).rglob("*.py")]
    return {
        dotted(file, project): file.read_text(encoding="utf-8")
        for file in files
        if file.parent.name != "versions"
    }


def test_a_file_is_named_after_what_it_holds(sources: dict[str, str]):
    words = {name: set(name.replace(".", "_").split("_")) for name in sources}
    assert [name for name in sources if words[name] & EMPTY_NAMES] == []


def test_a_file_tells_one_story(sources: dict[str, str]):
    assert too_long(sources) == []


@pytest.mark.slow
def test_a_module_says_what_it_owns(sources: dict[str, str]):
    assert without_introduction(sources) == []


def test_a_file_that_is_too_long_or_says_nothing_is_seen():
    lines = {"siteatlas.short": "a = 1\n", "siteatlas.long": "a = 1\n" * (MAX_LINES + 1)}
    assert [line.split()[0] for line in too_long(lines)] == ["siteatlas.long"]
    assert without_introduction(lines) == ["siteatlas.long"]
