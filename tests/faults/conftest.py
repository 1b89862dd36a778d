"""What the fault tests share. A short selection runs always, the rest with `make faults`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from tests.faults.cluster import RestartableServer, restartable_server
from tests.faults.database_inspector import DatabaseInspector, open_inspector
from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.faults.oracle import Snapshot, take_snapshot
from tests.faults.phases import Phase, held, staged
from tests.fixtures.pooler import SERVER_CONNECTIONS, running_pooler

FULL = os.environ.get("SITEATLAS_FAULTS") == "full"
POOLED = bool(os.environ.get("SITEATLAS_TEST_POOLED"))
HERE = Path(__file__).parent
LOGIN_RETRY_SECONDS = 40
figures_of_run = Figures()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the long tests, unless `make faults` runs."""
    mine = [item for item in items if HERE in item.path.parents]
    long = [item for item in mine if not item.get_closest_marker("faults_short")]
    if not FULL and long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table for the report."""
    lines = figures_of_run.lines()
    if lines:
        terminalreporter.section("measured under faults")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def figures() -> Figures:
    """Where the tests put what they measured."""
    return figures_of_run


@pytest.fixture(scope="session")
def cluster() -> Iterator[RestartableServer]:
    """A PostgreSQL server that tests may stop."""
    with restartable_server() as server:
        yield server


@pytest_asyncio.fixture
async def url(cluster: RestartableServer) -> AsyncIterator[str]:
    """A fresh, migrated database."""
    name = await cluster.databases.create()
    yield cluster.databases.url_of(name)
    await cluster.databases.drop(name)


@pytest_asyncio.fixture
async def inspector(url: str) -> AsyncIterator[DatabaseInspector]:
    """A direct connection to the database, bypassing proxies and poolers under test."""
    async with open_inspector(url) as opened:
        yield opened


@pytest_asyncio.fixture
async def client_url(url: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The database URL for processes under test: direct, or through a pooler."""
    if not POOLED:
        yield url
        return
    program = request.getfixturevalue("pgbouncer_program")
    with running_pooler(program, url) as pooler:
        yield pooler.url
        assert await named_statements_at_last(pooler.url) == [0] * SERVER_CONNECTIONS


async def named_statements_at_last(pooled_url: str) -> list[int]:
    """The same, retried until the pooler has noticed that a restarted server is back."""
    async with asyncio.timeout(LOGIN_RETRY_SECONDS):
        while True:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                return await named_statements(pooled_url)
            await asyncio.sleep(1)


async def named_statements(pooled_url: str) -> list[int]:
    """How many prepared statements each connection of the pooler to the server keeps."""
    count = "SELECT count(*) FROM pg_prepared_statements"
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(SERVER_CONNECTIONS):
            connection = await DatabaseInspector(pooled_url).connect(statement_cache_size=0)
            stack.push_async_callback(connection.close)
            await stack.enter_async_context(connection.transaction())
            found.append(await connection.fetchval(count))
        return found


@pytest_asyncio.fixture
async def fleet(
    client_url: str, inspector: DatabaseInspector, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """The processes of a test."""
    async with Fleet(client_url, inspector, tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def undisturbed(url: str, inspector: DatabaseInspector, fleet: Fleet) -> Snapshot:
    """The snapshot of the staged site without any fault; starts two workers, which keep running."""
    await fleet.workers(2, concurrency=1)
    async with staged(url, inspector) as job:
        async with held(job, Phase.COMMITTED):
            pass
        return await take_snapshot(inspector, job.site.base)
