"""Machines for acceptance tests; each file has one data directory and its own demo sites."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from siteatlas.demo.server import DemoSite
from siteatlas.storage.embedded.server import EmbeddedServer
from tests.fixtures.commands import Machine, running_demo_sites
from tests.fixtures.embedded import data_directory
from tests.fixtures.pooler import running_pooler


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, DemoSite]]:
    """The demo sites, running."""
    with running_demo_sites() as running:
        yield running


@pytest.fixture(scope="module")
def machine(sites: dict[str, DemoSite], request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine whose database keeps running between commands, and that may scan the sites.

    With `SITEATLAS_TEST_POOLED` it reaches its database through PgBouncer.
    """
    allowed = {"SITEATLAS_EGRESS_ALLOW": ",".join(site.host_port for site in sites.values())}
    with (
        data_directory() as folder,
        EmbeddedServer(folder, announce=lambda _text: None) as server,
        ExitStack() as stack,
    ):
        if not os.environ.get("SITEATLAS_TEST_POOLED"):
            yield Machine(folder, allowed)
            return
        direct = Machine(folder, {"DATABASE_URL": server.url})
        assert direct.run("db", "upgrade").returncode == 0
        program = request.getfixturevalue("pgbouncer_program")
        pooler = stack.enter_context(running_pooler(program, server.url))
        yield Machine(folder, allowed | {"DATABASE_URL": pooler.url_of("siteatlas")})


@pytest.fixture
def fresh_machine(sites: dict[str, DemoSite]) -> Iterator[Machine]:
    """A machine on which nothing ever ran."""
    allowed = ",".join(site.host_port for site in sites.values())
    with data_directory() as folder:
        yield Machine(folder, {"SITEATLAS_EGRESS_ALLOW": allowed})
