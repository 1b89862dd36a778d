"""Statements are built with SQLAlchemy; SQL as text stands in migrations only.

Two files go past SQLAlchemy to the driver: `storage/statements/url_stream.py`, which sends new listings by
COPY (decision 0014), and `storage/backup/bulk_commands.py`, which copies whole tables (decision 0044).
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TEXT_ALLOWED_AS = {"server_default", "postgresql_where", "index_where"}
PAST_SQLALCHEMY = {
    "copy_from_query",
    "copy_from_table",
    "copy_records_to_table",
    "copy_to_table",
    "dbapi_connection",
    "driver_connection",
    "exec_driver_sql",
    "get_raw_connection",
    "raw_connection",
}
TAKE_STATEMENTS = {
    "cursor",
    "execute",
    "executemany",
    "fetch",
    "fetchmany",
    "fetchrow",
    "fetchval",
    "prepare",
    "scalar",
    "scalars",
    "stream",
}
EXCEPTIONS = {
    # Checks a pooled connection by a simple query, which a pooler forwards as a whole.
    "storage/engine.py": {"driver_connection", "execute"},
    "storage/session.py": {"driver_connection"},
    "storage/backup/bulk_commands.py": {
        "copy_from_table",
        "copy_to_table",
        "driver_connection",
        "get_raw_connection",
        "text",
    },
    "storage/statements/url_stream.py": {
        "copy_to_table",
        "driver_connection",
        "get_raw_connection",
    },
}


def parts_of_the_schema(tree: ast.Module) -> set[int]:
    """The nodes of defaults and predicates, which SQLAlchemy takes as text."""
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg in TEXT_ALLOWED_AS
    ]
    indexes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Index"
    ]
    return {id(child) for node in [*values, *indexes] for child in ast.walk(node)}


def takes_text(call: ast.Call) -> bool:
    """Whether a method that takes statements is given text as the first argument."""
    first = call.args[0] if call.args else None
    is_text = isinstance(first, ast.JoinedStr) or (
        isinstance(first, ast.Constant) and isinstance(first.value, str)
    )
    return getattr(call.func, "attr", "") in TAKE_STATEMENTS and is_text


def raw_sql(source: str) -> set[str]:
    """The names by which a module hands text, or anything past SQLAlchemy, to the database."""
    tree = ast.parse(source)
    schema = parts_of_the_schema(tree)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PAST_SQLALCHEMY:
            found.add(node.attr)
        elif isinstance(node, ast.Call) and id(node) not in schema:
            if getattr(node.func, "id", getattr(node.func, "attr", "")) == "text":
                found.add("text")
            elif takes_text(node):
                found.add(ast.unparse(node.func).rpartition(".")[2])
    return found


@pytest.mark.slow
@pytest.mark.criterion("orm-only")
def test_no_sql_is_written_as_text_outside_of_migrations(project: Path) -> None:
    package = project / "src" / "siteatlas"
    files = [path for path in package.rglob("*.py") if "migrations" not in path.parts]
    found = {
        path.relative_to(package).as_posix(): names
        for path in files
        if (names := raw_sql(path.read_text(encoding="utf-8")))
    }
    assert len(files) > 150
    assert found == EXCEPTIONS


@pytest.mark.criterion("orm-only")
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('session.execute(text("SELECT 1"))', "text"),
        ('session.execute(sqlalchemy.text("SELECT 1"))', "text"),
        ('driver.execute("SELECT 1")', "execute"),
        ('driver.execute(f"DROP TABLE {name}")', "execute"),
        ('await driver.fetchval("SELECT 1")', "fetchval"),
        ('connection.exec_driver_sql("SELECT 1")', "exec_driver_sql"),
        ("raw = await connection.get_raw_connection()", "get_raw_connection"),
        ("driver = raw.driver_connection", "driver_connection"),
        ('await driver.copy_to_table("jobs", source=rows)', "copy_to_table"),
    ],
)
def test_the_check_sees_sql_written_as_text(line: str, name: str) -> None:
    assert raw_sql(line) == {name}


def test_the_check_allows_text_in_the_schema() -> None:
    assert raw_sql("mapped_column(server_default=text('0'))") == set()
    assert raw_sql("Index('ix', 'id', postgresql_where=text('id > 0'))") == set()
