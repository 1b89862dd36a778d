"""The operations of the queue in any order, on a real PostgreSQL, compared with a model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from siteatlas.storage.session import bind_database, create_database
from tests.faults.cluster import RestartableServer
from tests.faults.queue_machine import QueueMachine

COMMON = settings(
    deadline=None,
    database=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
SHORT = settings(COMMON, max_examples=15, stateful_step_count=20)
LONG = settings(COMMON, max_examples=200, stateful_step_count=50)
OUTCOMES = {"completed", "failed", "retried", "released", "snoozed", "rescued", "cancelled"}


@pytest.fixture
def machine(cluster: RestartableServer) -> Iterator[type[QueueMachine]]:
    """The machine with a loop and a database of its own."""
    with asyncio.Runner() as runner:
        name = runner.run(cluster.databases.create())
        database = create_database(cluster.databases.url_of(name), behind_pooler=False)
        bind_database(database)
        QueueMachine.runner, QueueMachine.outcomes = runner, Counter()
        yield QueueMachine
        bind_database(None)
        runner.run(database.close())
        runner.run(cluster.databases.drop(name))


@pytest.mark.faults_short
def test_the_queue_keeps_its_promises_in_any_order(machine: type[QueueMachine]):
    run_state_machine_as_test(machine, settings=SHORT)
    assert len(machine.outcomes) > 2, machine.outcomes


@pytest.mark.timeout(900)
def test_the_queue_keeps_its_promises_in_very_many_orders(machine: type[QueueMachine]):
    run_state_machine_as_test(machine, settings=LONG)
    assert set(machine.outcomes) == OUTCOMES
