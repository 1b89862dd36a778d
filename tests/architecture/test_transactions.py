"""Who submits the statements owns the session and its transaction; the statements are given both."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

STATEMENT_ROOMS = {"queue", "insights", "storage"}
BACKGROUND_ROOMS = {"processor", "scheduler"}
OWNERS_OF_CONNECTIONS = {"session.py", "server.py"}
SESSIONS_OF_JOBS = {"get_background_session", "get_job_session"}
SESSIONS = {"get_session", "get_statement_session"} | SESSIONS_OF_JOBS
MAKERS_OF_SESSIONS = SESSIONS | {"AsyncSession", "async_sessionmaker", "Session", "sessionmaker"}
SAVEPOINTS = {"queue/job_service.py", "queue/operator_actions.py", "scheduler/sitemap_scheduler.py"}


@pytest.fixture(scope="module")
def package(project: Path) -> Path:
    return project / "src" / "siteatlas"


def files_of(package: Path, rooms: set[str]) -> list[Path]:
    """The modules of some rooms, but for those that make connections and migrations."""
    return [
        file
        for room in sorted(rooms)
        for file in (package / room).rglob("*.py")
        if file.name not in OWNERS_OF_CONNECTIONS and "migrations" not in file.parts
    ]


def calls_of(file: Path, names: set[str]) -> list[str]:
    """The functions and methods of these names that a module calls."""
    called = [
        getattr(node.func, "id", getattr(node.func, "attr", ""))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    return [name for name in called if name in names]


def offenders(package: Path, files: list[Path], names: set[str]) -> dict[str, list[str]]:
    """Which modules call what they should not."""
    found = {file.relative_to(package).as_posix(): calls_of(file, names) for file in files}
    return {file: called for file, called in found.items() if called}


def blocks_with_sessions(file: Path) -> Iterator[ast.AsyncWith]:
    """Each `async with` of a module that opens a session."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.AsyncWith):
            opened = {ast.unparse(item.context_expr).partition("(")[0] for item in node.items}
            if opened & SESSIONS:
                yield node


@pytest.mark.criterion("transaction-boundaries")
def test_statement_modules_and_services_never_commit(package: Path) -> None:
    services = [file for file in package.rglob("*_service.py") if "migrations" not in file.parts]
    files = [*files_of(package, STATEMENT_ROOMS), *services]
    assert offenders(package, files, {"commit"}) == {}


@pytest.mark.criterion("transaction-boundaries")
def test_statement_modules_are_given_their_session(package: Path) -> None:
    files = files_of(package, STATEMENT_ROOMS)
    assert len(files) > 40
    assert offenders(package, files, MAKERS_OF_SESSIONS) == {}


@pytest.mark.criterion("transaction-boundaries")
def test_each_router_begins_and_ends_its_own_transactions(package: Path) -> None:
    blocks = [block for file in files_of(package, {"api"}) for block in blocks_with_sessions(file)]
    begun = [
        any(ast.unparse(item.context_expr) == "session.begin()" for item in block.items)
        for block in blocks
    ]
    assert len(begun) > 15
    assert all(begun)


@pytest.mark.criterion("background-sessions")
def test_background_work_opens_background_sessions_only(package: Path) -> None:
    files = files_of(package, BACKGROUND_ROOMS)
    others = MAKERS_OF_SESSIONS - SESSIONS_OF_JOBS | {"bound_database", "Database"}
    assert offenders(package, files, others) == {}
    for name in SESSIONS_OF_JOBS:
        assert offenders(package, files, {name})


@pytest.mark.criterion("no-nesting")
def test_savepoints_stand_where_a_conflict_must_not_end_the_caller_s_transaction(
    package: Path,
) -> None:
    found = offenders(package, list(package.rglob("*.py")), {"begin_nested"})
    assert set(found) == SAVEPOINTS
    assert {len(calls) for calls in found.values()} == {1}
