"""What holds for every test: which tests run, and that no connection leaves this machine."""

from __future__ import annotations

import gc
import ipaddress
import os
import shutil
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.fixtures import timings
from tests.fixtures.application import app, client, cut_off_app, cut_off_client
from tests.fixtures.database import (
    database,
    database_name,
    database_url,
    postgres_server,
    session,
)

# One PostgreSQL per test process serves all tests that ask for a database.
__all__ = [
    "app",
    "client",
    "cut_off_app",
    "cut_off_client",
    "database",
    "database_name",
    "database_url",
    "postgres_server",
    "session",
]

PROJECT = Path(__file__).resolve().parent.parent
# The fixtures that reach the database through PgBouncer when they are told to.
POOLED_FIXTURES = {"client_url", "machine", "pgbouncer_program", "postgres_server"}
# The folders of tests that start a PostgreSQL or the whole program.
PROCESS_FOLDERS = {"acceptance", "browser", "database", "faults"}
# More of them have something in common.
FEW_FAILURES = 10
refused_addresses: list[str] = []
# No test fails because a machine is slow, or because of an example that no earlier run had:
# `make check-all` searches for those.
settings.register_profile(
    "siteatlas", deadline=None, derandomize=os.environ.get("SITEATLAS_TESTS") != "full"
)
settings.load_profile("siteatlas")


def is_local(connection: socket.socket, address: tuple[object, ...]) -> bool:
    """Whether a connection stays on this machine: loopback, Unix and other local sockets."""
    if connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return True
    host = str(address[0]).partition("%")[0]
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_foreign_connections(event: str, arguments: tuple[object, ...]) -> None:
    """Audit hook: refuse a connection to another machine and remember it."""
    if event != "socket.connect":
        return
    connection, address = arguments
    assert isinstance(connection, socket.socket)
    if isinstance(address, tuple) and not is_local(connection, address):
        refused_addresses.append(str(address))
        raise ConnectionRefusedError(f"Tests connect to this machine only, not to {address}.")


sys.addaudithook(refuse_foreign_connections)
# Modules and tests that are loaded stay until the end; visiting them again and again costs a fifth
# of the time of `make test-fast`.
gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need PostgreSQL, and leave out those that this run does not want.

    Without `SITEATLAS_TESTS=full` (`make check-all`) those marked `full` are left out; through a
    pooler all are that `SITEATLAS_TEST_POOLED` does not change.
    """
    full = os.environ.get("SITEATLAS_TESTS") == "full"
    pooled = bool(os.environ.get("SITEATLAS_TEST_POOLED"))
    left_out = []
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "postgres_server" in fixtures or not PROCESS_FOLDERS.isdisjoint(item.path.parts):
            item.add_marker("database")
        if (item.get_closest_marker("full") and not full) or (
            pooled and POOLED_FIXTURES.isdisjoint(fixtures)
        ):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        excluded = set(left_out)
        items[:] = [item for item in items if item not in excluded]


def pytest_collection_finish() -> None:
    """Take what is loaded by now out of garbage collection, and start it for the tests."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measured durations on request; if many tests failed, what they have in common."""
    if timings.lines and os.environ.get("SITEATLAS_TIMINGS"):
        terminalreporter.section("timings")
        for line in timings.lines:
            terminalreporter.line(line)
    stats = terminalreporter.stats
    reports = [*stats.get("failed", ()), *stats.get("error", ())]
    if len(reports) <= FEW_FAILURES:
        return
    causes = Counter(str(report.longrepr).strip().rpartition("\n")[2][:200] for report in reports)
    terminalreporter.section("Most frequent causes")
    for cause, count in causes.most_common(5):
        terminalreporter.line(f"{count} x {cause}")
    usage = shutil.disk_usage(tempfile.gettempdir())
    terminalreporter.line(f"free space for temporary files: {usage.free >> 20} MiB")


# The default of structlog formats a traceback with all local variables, which takes seconds.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)


@pytest.fixture(autouse=True)
def no_connection_leaves_this_machine() -> Iterator[None]:
    """Fail a test that tried to reach another machine, also when the code forgave the refusal."""
    refused_addresses.clear()
    yield
    assert refused_addresses == [], "the test tried to connect to another machine"


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return PROJECT


def required_program(name: str, *, more_path: str = "") -> str:
    """The path of a program; without it the test is skipped, or fails where it is required."""
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{more_path}")
    if program is None and os.environ.get(f"SITEATLAS_REQUIRE_{name.upper()}"):
        pytest.fail(f"{name} is required here and was not found")
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


@pytest.fixture(scope="session")
def pgbouncer_program() -> str:
    """The path of pgbouncer."""
    return required_program("pgbouncer", more_path="/usr/sbin")


@pytest.fixture(scope="session")
def chromium_program() -> str:
    """The path of Chromium."""
    return required_program("chromium")


@pytest.fixture(scope="session")
def faketime_program() -> str:
    """The path of faketime."""
    return required_program("faketime")
