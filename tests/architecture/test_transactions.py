"""Who submits the statements owns the session and its transaction; the statements are given both."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.fixtures.source_names import locate, modules_in, named_nodes

STATEMENT_ROOMS = {"siteatlas.queue", "siteatlas.catalog", "siteatlas.storage"}
BACKGROUND_ROOMS = {"siteatlas.processor", "siteatlas.scheduler"}
ROUTERS = {"siteatlas.api.routers"}
SESSION_MODULE = "siteatlas.storage.session"
SESSIONS = {
    "get_session",
    "get_autocommit_session",
    "execute_autocommit",
    "get_background_session",
    "get_job_session",
}
FOR_JOB = "get_autocommit_session(for_job=True)"
SESSIONS_OF_JOBS = {"get_background_session", "get_job_session", FOR_JOB}
SESSION_MAKERS = (
    SESSIONS | SESSIONS_OF_JOBS | {"AsyncSession", "async_sessionmaker", "Session", "sessionmaker"}
)
# They run their transaction again when it lost against another one, or when they have waited for a
# publication, each time in a new session.
RETRIED = {
    "siteatlas.api.routers.changes._atom_response",
    "siteatlas.api.routers.changes._read_page",
    "siteatlas.api.routers.domains._remove_domain_with_retries",
    "siteatlas.api.routers.scans._check_right_to_watch",
    "siteatlas.api.routers.scans._join_active_scan",
    "siteatlas.api.routers.scans._submit_scan",
}
SAVEPOINTS = {
    "siteatlas.queue.job_service.JobService.update_status",
    "siteatlas.queue.operator_actions.retry",
    "siteatlas.scheduler.sitemap_scheduler._enqueue_due_site",
    "siteatlas.scheduler.sitemap_scheduler._follow_active_jobs",
}


def files_of(package: Path, rooms: set[str]) -> list[Path]:
    return [file for room in sorted(rooms) for file in modules_in(room, package)]


def offenders(package: Path, rooms: set[str], names: set[str]) -> dict[str, list[str]]:
    """Which functions of some rooms call what they should not."""
    found: dict[str, list[str]] = {}
    for file in files_of(package, rooms):
        for function, node in named_nodes(file, package):
            called = getattr(node, "func", None)
            name = getattr(called, "id", getattr(called, "attr", ""))
            if ast.unparse(node) == FOR_JOB:
                name = FOR_JOB
            if name in names:
                found.setdefault(function, []).append(name)
    return found


def transactions_of_writers(package: Path, rooms: set[str]) -> dict[str, int]:
    """How many transactions each function begins that is given a session to write with."""
    return {
        name: ast.unparse(node).count("session.begin():")
        for file in files_of(package, rooms)
        for name, node in named_nodes(file, package)
        if isinstance(node, ast.AsyncFunctionDef)
        and "session: WriteSession" in ast.unparse(node.args)
    }


def public_functions_with_sessions(name: str, package: Path) -> set[str]:
    """The functions of a module that give their caller a session, or run one for a statement."""
    module, _ = locate(name, package)
    return {
        function.name
        for function in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and not function.name.startswith("_")
        and re.search(r"Session\b|\bRow\b", ast.unparse(function.returns or ast.Constant("")))
    }


def test_every_function_that_opens_a_session_is_known_here(package: Path) -> None:
    assert public_functions_with_sessions(SESSION_MODULE, package) == SESSIONS


@pytest.mark.criterion("transaction-boundaries")
def test_statement_modules_and_services_never_commit(package: Path) -> None:
    assert offenders(package, STATEMENT_ROOMS, {"commit", "rollback"}) == {}


@pytest.mark.parametrize("line", ["await session.commit()", "await (yield).rollback()"])
def test_a_module_that_ends_a_transaction_is_seen(tmp_path: Path, line: str) -> None:
    module = tmp_path / "siteatlas" / "queue" / "deeper" / "careless.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"async def write(session):\n    {line}\n", encoding="utf-8")
    found = offenders(tmp_path / "siteatlas", {"siteatlas.queue"}, {"commit", "rollback"})
    assert set(found) == {"siteatlas.queue.deeper.careless.write"}


@pytest.mark.criterion("transaction-boundaries")
def test_statement_modules_are_given_their_session(package: Path) -> None:
    assert len(files_of(package, STATEMENT_ROOMS)) > 40
    found = offenders(package, STATEMENT_ROOMS, SESSION_MAKERS)
    assert found
    assert [name for name in found if not name.startswith(f"{SESSION_MODULE}.")] == []


@pytest.mark.parametrize("opener", sorted(SESSIONS))
def test_a_service_that_opens_a_session_is_seen(tmp_path: Path, opener: str) -> None:
    module = tmp_path / "siteatlas" / "queue" / "careless_service.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        f"async def read():\n    async with {opener}() as session:\n        pass\n",
        encoding="utf-8",
    )
    found = offenders(tmp_path / "siteatlas", {"siteatlas.queue"}, SESSION_MAKERS)
    assert found == {"siteatlas.queue.careless_service.read": [opener]}


@pytest.mark.criterion("transaction-boundaries")
def test_routes_are_given_their_session_unless_they_retry(package: Path) -> None:
    assert set(offenders(package, ROUTERS, SESSIONS)) == RETRIED


@pytest.mark.criterion("transaction-boundaries")
def test_a_route_that_writes_begins_one_transaction(package: Path) -> None:
    begun = transactions_of_writers(package, ROUTERS)
    assert len(begun) >= 5
    assert set(begun.values()) == {1}


def test_a_route_that_opens_a_session_or_leaves_out_the_transaction_is_seen(
    tmp_path: Path,
) -> None:
    package = tmp_path / "siteatlas"
    package.mkdir()
    (package / "careless.py").write_text(
        "async def read(job_id):\n"
        "    async with get_session() as session:\n"
        "        return await find_job(session, job_id)\n"
        "async def write(job_id, session: WriteSession):\n"
        "    await cancel(session, job_id)\n",
        encoding="utf-8",
    )
    careless = {"siteatlas.careless"}
    assert offenders(package, careless, SESSIONS) == {"siteatlas.careless.read": ["get_session"]}
    assert transactions_of_writers(package, careless) == {"siteatlas.careless.write": 0}


@pytest.mark.slow
@pytest.mark.criterion("background-sessions")
def test_background_work_opens_background_sessions_only(package: Path) -> None:
    others = SESSION_MAKERS - SESSIONS_OF_JOBS | {"bound_database", "Database"}
    assert offenders(package, BACKGROUND_ROOMS, others) == {}
    for name in SESSIONS_OF_JOBS:
        assert offenders(package, BACKGROUND_ROOMS, {name})


@pytest.mark.slow
@pytest.mark.criterion("no-nesting")
def test_savepoints_stand_where_a_conflict_must_not_end_the_caller_s_transaction(
    package: Path,
) -> None:
    assert set(offenders(package, {"siteatlas"}, {"begin_nested"})) == SAVEPOINTS
