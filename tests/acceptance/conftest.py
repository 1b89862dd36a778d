"""Machines for acceptance tests; each file has one data directory and its own demo sites."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from siteatlas.demo.server import DemoSite
from siteatlas.storage.embedded import EmbeddedServer
from tests.fixtures.commands import Machine, data_directory, running_demo_sites


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, DemoSite]]:
    """The demo sites, running."""
    with running_demo_sites() as running:
        yield running


@pytest.fixture(scope="module")
def machine(sites: dict[str, DemoSite]) -> Iterator[Machine]:
    """A machine whose database keeps running between commands, and that may scan the sites."""
    allowed = ",".join(site.host_port for site in sites.values())
    with (
        data_directory() as folder,
        EmbeddedServer(folder, announce=lambda _text: None),
    ):
        yield Machine(folder, {"SITEATLAS_EGRESS_ALLOW": allowed})


@pytest.fixture
def fresh_machine(sites: dict[str, DemoSite]) -> Iterator[Machine]:
    """A machine on which nothing ever ran."""
    allowed = ",".join(site.host_port for site in sites.values())
    with data_directory() as folder:
        yield Machine(folder, {"SITEATLAS_EGRESS_ALLOW": allowed})
