"""Statements are built with SQLAlchemy; SQL as text stands in migrations only."""

from __future__ import annotations

import ast
from pathlib import Path

TEXT_ALLOWED_AS = {"server_default", "postgresql_where", "index_where"}


def raw_sql_calls(path: Path) -> list[int]:
    """The lines that hand text to the database, but for defaults and predicates of the schema."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    schema_parts = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg in TEXT_ALLOWED_AS
        for child in ast.walk(node.value)
    }
    indexes = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Index"
        for child in ast.walk(node)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (getattr(node.func, "id", "") == "text" or getattr(node.func, "attr", "") in RAW)
        and id(node) not in schema_parts | indexes
    ]


RAW = {"exec_driver_sql", "raw_connection", "copy_records_to_table", "fetchval", "fetchrow"}


def test_no_sql_is_written_as_text_outside_of_migrations(project: Path) -> None:
    rooms = ("storage", "queue", "insights", "processor", "scheduler", "api", "access", "cli")
    files = [
        path
        for room in rooms
        for path in (project / "src" / "siteatlas" / room).rglob("*.py")
        if "migrations" not in path.parts
    ]
    found = {str(path): lines for path in files if (lines := raw_sql_calls(path))}
    assert len(files) > 50
    assert found == {}


def test_the_check_sees_sql_written_as_text(tmp_path: Path) -> None:
    module = tmp_path / "bad.py"
    module.write_text('session.execute(text("SELECT 1"))\n', encoding="utf-8")
    assert raw_sql_calls(module) == [1]
