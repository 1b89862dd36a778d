"""Who submits the statements owns the transaction: statement modules and services never commit."""

from __future__ import annotations

import ast
from pathlib import Path

STATEMENT_ROOMS = {"queue", "insights", "storage"}
OWNERS_OF_CONNECTIONS = {"session.py", "embedded.py"}


def never_commits(file: Path, package: Path) -> bool:
    """Whether the house rules forbid a commit in this file."""
    room, *rest = file.relative_to(package).parts
    if file.stem.endswith("_service"):
        return True
    owns_connections = file.name in OWNERS_OF_CONNECTIONS or "migrations" in rest
    return room in STATEMENT_ROOMS and not (room == "storage" and owns_connections)


def commits(file: Path) -> list[int]:
    """The lines that call `.commit(...)`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "commit"
    ]


def test_statement_modules_and_services_never_commit(project: Path):
    package = project / "src" / "siteatlas"
    files = [file for file in package.rglob("*.py") if never_commits(file, package)]
    assert {str(file.relative_to(package)): commits(file) for file in files if commits(file)} == {}
