"""Statements are built with SQLAlchemy; SQL as text stands in migrations only.

Four modules go past SQLAlchemy to the driver: `siteatlas.catalog.url_copy` sends new listings by COPY (decision
0010), `siteatlas.storage.backup` copies whole tables, and `siteatlas.storage.engine` and `siteatlas.storage.session`
check connections and set limits.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.fixtures.source_names import modules_in, named_nodes

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
COPY = {"copy_to_table", "driver_connection", "get_raw_connection"}
EXCEPTIONS = {
    "siteatlas.catalog.url_copy.copy_urls": COPY,
    "siteatlas.storage.backup.copy_in": COPY,
    "siteatlas.storage.backup.copy_out": COPY - {"copy_to_table"} | {"copy_from_table"},
    "siteatlas.storage.backup._continue_identity": {"text"},
    "siteatlas.storage.backup.analyze": {"text"},
    "siteatlas.storage.backup.truncate": {"text"},
    # Checks a pooled connection by a simple query, which a pooler forwards as a whole.
    "siteatlas.storage.engine._require_working_connection": {"driver_connection"},
    "siteatlas.storage.engine._run_check": {"execute"},
    # Limits are sent with the BEGIN of a transaction.
    "siteatlas.storage.engine._drop_unused_limits": {"driver_connection"},
    "siteatlas.storage.session._set_limits": {"driver_connection"},
}


def parts_of_the_schema(nodes: list[ast.AST]) -> set[int]:
    """The nodes of defaults and predicates, which SQLAlchemy takes as text."""
    values = [
        node.value
        for node in nodes
        if isinstance(node, ast.keyword) and node.arg in TEXT_ALLOWED_AS
    ]
    indexes = [
        node
        for node in nodes
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


def raw_sql(file: Path, package: Path) -> dict[str, set[str]]:
    """The functions that hand text, or anything past SQLAlchemy, to the database, and how."""
    nodes = list(named_nodes(file, package))
    schema = parts_of_the_schema([node for _, node in nodes])
    found: dict[str, set[str]] = {}
    for name, node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in PAST_SQLALCHEMY:
            found.setdefault(name, set()).add(node.attr)
        elif isinstance(node, ast.Call) and id(node) not in schema:
            if getattr(node.func, "id", getattr(node.func, "attr", "")) == "text":
                found.setdefault(name, set()).add("text")
            elif takes_text(node):
                found.setdefault(name, set()).add(ast.unparse(node.func).rpartition(".")[2])
    return found


@pytest.mark.slow
@pytest.mark.criterion("orm-only")
def test_no_sql_is_written_as_text_outside_of_migrations(package: Path) -> None:
    files = modules_in("siteatlas", package)
    found = [raw_sql(file, package) for file in files]
    assert len(files) > 150
    assert {name: how for names in found for name, how in names.items()} == EXCEPTIONS


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
def test_the_check_sees_sql_written_as_text(tmp_path: Path, line: str, name: str) -> None:
    module = tmp_path / "careless.py"
    module.write_text(f"{line}\nclass A:\n    async def f(self):\n        {line}\n")
    careless = f"{tmp_path.name}.careless"
    assert raw_sql(module, tmp_path) == {careless: {name}, f"{careless}.A.f": {name}}


@pytest.mark.parametrize(
    "line",
    [
        "mapped_column(server_default=text('0'))",
        "Index('ix', 'id', postgresql_where=text('id > 0'))",
    ],
)
def test_the_check_allows_text_in_the_schema(tmp_path: Path, line: str) -> None:
    module = tmp_path / "tables.py"
    module.write_text(line)
    assert raw_sql(module, tmp_path) == {}
