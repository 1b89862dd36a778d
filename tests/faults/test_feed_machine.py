"""A site and its scans in any order, with faults and crashes: the feed keeps its guarantees."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.session import bind_database, create_database
from tests.faults.cluster import RestartableServer
from tests.faults.feed_machine import FeedMachine
from tests.faults.oracle import POOLED
from tests.fixtures.crashes import crash_simulation
from tests.fixtures.pooler import running_pooler

ALL_EXAMPLES = 150
EXAMPLES = int(os.environ.get("SITEATLAS_FAULT_EXAMPLES", ALL_EXAMPLES))
COMMON = settings(
    deadline=None,
    database=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
SHORT = settings(COMMON, max_examples=6, stateful_step_count=15)
LONG = settings(COMMON, max_examples=EXAMPLES, stateful_step_count=40)
KINDS = {"added", "back", "moved", "changed", "removed", "duplicate_added", "duplicate_removed"}
INTERRUPTIONS = {"died", "stopped", "cancelled"}


@pytest.fixture
def machine(
    cluster: RestartableServer, request: pytest.FixtureRequest
) -> Iterator[type[FeedMachine]]:
    """The machine with a loop, a database and a client of its own."""
    with asyncio.Runner() as runner, crash_simulation(), ExitStack() as stack:
        name = runner.run(cluster.databases.create())
        url = cluster.databases.url_of(name)
        if POOLED:
            program = request.getfixturevalue("pgbouncer_program")
            url = stack.enter_context(running_pooler(program, url)).url
        database = create_database(url, behind_pooler=POOLED)
        bind_database(database)
        app = create_app(Settings(), run_scheduler=False, database=database)
        transport = httpx.ASGITransport(app=app)
        http = httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")
        FeedMachine.runner, FeedMachine.http, FeedMachine.seen = runner, http, Counter()
        yield FeedMachine
        runner.run(http.aclose())
        bind_database(None)
        runner.run(database.close())
        runner.run(cluster.databases.drop(name))


@pytest.mark.faults_short
@pytest.mark.timeout(180)
def test_a_copy_kept_by_events_equals_the_stored_urls_in_any_order(machine: type[FeedMachine]):
    run_state_machine_as_test(machine, settings=SHORT)
    assert machine.seen["died"] + machine.seen["stopped"] > 3, machine.seen


@pytest.mark.timeout(3600)
def test_a_copy_kept_by_events_equals_the_stored_urls_in_very_many_orders(
    machine: type[FeedMachine],
):
    run_state_machine_as_test(machine, settings=LONG)
    assert set(machine.seen) >= INTERRUPTIONS
    # A few examples do not lead to each kind of change.
    if EXAMPLES >= ALL_EXAMPLES:
        assert set(machine.seen) >= {*KINDS, "removals_held", "sitemap_gone"}
