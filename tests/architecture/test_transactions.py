"""Who submits the statements owns the session and its transaction; the statements are given both."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

STATEMENT_ROOMS = {"queue", "insights", "storage"}
BACKGROUND_ROOMS = {"processor", "scheduler"}
SESSION_MODULE = "storage/session.py"
SESSIONS_OF_JOBS = {
    "get_background_session",
    "get_job_session",
    "get_job_autocommit_session",
    "get_queue_session",
}
SESSIONS_OF_REQUESTS = {
    "get_session",
    "get_snapshot_session",
    "get_autocommit_session",
    "execute_autocommit",
    "session_dependency",
}
SESSIONS = SESSIONS_OF_REQUESTS | SESSIONS_OF_JOBS
SESSION_MAKERS = SESSIONS | {"AsyncSession", "async_sessionmaker", "Session", "sessionmaker"}
# They run their transaction again when it lost against another one, or when they have waited for a
# publication, each time in a new session.
RETRIED = {
    "atom.py": {"_atom_response"},
    "changes.py": {"_read_page"},
    "scans.py": {"_submit_scan", "_check_right_to_watch", "_join_active_scan"},
    "domains.py": {"_remove_domain_with_retries"},
}
SAVEPOINTS = {
    "queue/job_service.py": 1,
    "queue/operator_actions.py": 1,
    "scheduler/due_sites.py": 2,
}


@pytest.fixture(scope="module")
def package(project: Path) -> Path:
    return project / "src" / "siteatlas"


def files_of(package: Path, rooms: set[str]) -> list[Path]:
    """The modules of some packages, without migrations."""
    return [
        file
        for room in sorted(rooms)
        for file in (package / room).rglob("*.py")
        if "migrations" not in file.parts
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


def functions_of(file: Path) -> Iterator[ast.AsyncFunctionDef]:
    """The asynchronous functions of a module."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.AsyncFunctionDef):
            yield node


def openers(file: Path) -> set[str]:
    """The functions of a module that open a session themselves."""
    return {
        function.name
        for function in functions_of(file)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SESSIONS
    }


def transactions_of_writers(file: Path) -> dict[str, int]:
    """How many transactions each function begins that is given a session to write with."""
    return {
        function.name: ast.unparse(function).count("session.begin():")
        for function in functions_of(file)
        if "session: WriteSession" in ast.unparse(function.args)
    }


def public_functions_with_sessions(module: Path) -> set[str]:
    """The functions of a module that give their caller a session, or run one for a statement."""
    return {
        function.name
        for function in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and not function.name.startswith("_")
        and re.search(r"Session\b|\bRow\b", ast.unparse(function.returns or ast.Constant("")))
    }


def test_every_function_that_opens_a_session_is_known_here(package: Path) -> None:
    assert public_functions_with_sessions(package / SESSION_MODULE) == SESSIONS


@pytest.mark.criterion("transaction-boundaries")
def test_statement_modules_and_services_never_commit(package: Path) -> None:
    services = [file for file in package.rglob("*_service.py") if "migrations" not in file.parts]
    files = [*files_of(package, STATEMENT_ROOMS), *services]
    assert offenders(package, files, {"commit", "rollback"}) == {}


@pytest.mark.parametrize("line", ["await session.commit()", "await (yield).rollback()"])
def test_a_module_that_ends_a_transaction_is_seen(tmp_path: Path, line: str) -> None:
    module = tmp_path / "queue" / "deeper" / "careless.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"async def write(session):\n    {line}\n", encoding="utf-8")
    found = offenders(tmp_path, files_of(tmp_path, STATEMENT_ROOMS), {"commit", "rollback"})
    assert set(found) == {"queue/deeper/careless.py"}


@pytest.mark.criterion("transaction-boundaries")
def test_statement_modules_are_given_their_session(package: Path) -> None:
    files = files_of(package, STATEMENT_ROOMS)
    assert len(files) > 40
    assert set(offenders(package, files, SESSION_MAKERS)) == {SESSION_MODULE}


@pytest.mark.parametrize("opener", sorted(SESSIONS))
def test_a_service_that_opens_a_session_is_seen(tmp_path: Path, opener: str) -> None:
    module = tmp_path / "queue" / "careless_service.py"
    module.parent.mkdir()
    module.write_text(
        f"async def read():\n    async with {opener}() as session:\n        pass\n",
        encoding="utf-8",
    )
    found = offenders(tmp_path, files_of(tmp_path, STATEMENT_ROOMS), SESSION_MAKERS)
    assert found == {"queue/careless_service.py": [opener]}


@pytest.mark.criterion("transaction-boundaries")
def test_routes_are_given_their_session_unless_they_retry(package: Path) -> None:
    routers = files_of(package, {"api/routers"})
    found = {file.name: opened for file in routers if (opened := openers(file))}
    assert found == RETRIED


@pytest.mark.criterion("transaction-boundaries")
def test_a_route_that_writes_begins_one_transaction(package: Path) -> None:
    writers = [transactions_of_writers(file) for file in files_of(package, {"api/routers"})]
    begun = {name: count for found in writers for name, count in found.items()}
    assert len(begun) >= 5
    assert set(begun.values()) == {1}


def test_a_route_that_opens_a_session_or_leaves_out_the_transaction_is_seen(
    tmp_path: Path,
) -> None:
    router = tmp_path / "careless.py"
    router.write_text(
        "async def read(job_id):\n"
        "    async with get_session() as session:\n"
        "        return await find_job(session, job_id)\n"
        "async def write(job_id, session: WriteSession):\n"
        "    await cancel(session, job_id)\n",
        encoding="utf-8",
    )
    assert openers(router) == {"read"}
    assert transactions_of_writers(router) == {"write": 0}


@pytest.mark.slow
@pytest.mark.criterion("background-sessions")
def test_background_work_opens_background_sessions_only(package: Path) -> None:
    files = files_of(package, BACKGROUND_ROOMS)
    others = SESSION_MAKERS - SESSIONS_OF_JOBS | {"bound_database", "Database"}
    assert offenders(package, files, others) == {}
    for name in SESSIONS_OF_JOBS:
        assert offenders(package, files, {name})


@pytest.mark.slow
@pytest.mark.criterion("no-nesting")
def test_savepoints_stand_where_a_conflict_must_not_end_the_caller_s_transaction(
    package: Path,
) -> None:
    found = offenders(package, list(package.rglob("*.py")), {"begin_nested"})
    assert {file: len(calls) for file, calls in found.items()} == SAVEPOINTS
