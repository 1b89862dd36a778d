"""The demo keeps to itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from siteatlas.cli.commands.demo import demo_data_dir, demo_settings
from siteatlas.demo.server import USUAL_PORT, DemoServer
from siteatlas.demo.sites import PLANS
from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import Secret, Settings, default_data_dir


@pytest.fixture
async def server() -> AsyncIterator[DemoServer]:
    async with DemoServer(PLANS[:2]) as running:
        yield running


def test_the_demo_has_a_data_directory_of_its_own():
    usual = default_data_dir()
    assert demo_data_dir(usual, USUAL_PORT) == usual.with_name(f"{usual.name}-demo")
    assert demo_data_dir(Path("/srv/atlas"), USUAL_PORT) == Path("/srv/atlas/demo")


def test_a_demo_whose_sites_have_another_port_has_other_data():
    usual = default_data_dir()
    assert demo_data_dir(usual, 8766) == usual.with_name(f"{usual.name}-demo-8766")
    assert demo_data_dir(Path("/srv/atlas"), 8766) == Path("/srv/atlas/demo-8766")


async def test_the_demo_uses_its_embedded_database_and_may_scan_its_sites(server: DemoServer):
    own = demo_settings(Settings(database_url=Secret("postgresql://db/x")), server)
    assert own.database_url is None
    assert own.egress_allow == (f"shop.localhost:{server.port},magazine.localhost:{server.port}")
    assert own.given == {"data_dir", "egress_allow", "notice"}


async def test_the_demo_may_also_reach_what_the_user_allowed(server: DemoServer):
    own = demo_settings(Settings(egress_allow="127.0.0.1:9000, 10.0.0.0/8:443"), server)
    entries = EgressPolicy.from_text(own.egress_allow).entries
    assert entries[2:] == ("127.0.0.1:9000", "10.0.0.0/8:443")


async def test_the_pages_of_the_demo_say_that_its_past_was_made(server: DemoServer):
    assert "was made" in demo_settings(Settings(), server).notice
    assert demo_settings(Settings(notice="Ask Ann."), server).notice == "Ask Ann."
