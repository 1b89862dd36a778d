"""The demo keeps to itself."""

from __future__ import annotations

from pathlib import Path

from siteatlas.cli.commands.demo import demo_data_dir, demo_settings
from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import Secret, Settings, default_data_dir

SITES = ["127.0.7.1:4000", "127.0.7.2:4001"]


def test_the_demo_has_a_data_directory_of_its_own():
    usual = default_data_dir()
    assert demo_data_dir(usual) == usual.with_name(f"{usual.name}-demo")
    assert demo_data_dir(Path("/srv/atlas")) == Path("/srv/atlas/demo")


def test_the_demo_uses_its_embedded_database_and_may_scan_its_sites():
    own = demo_settings(Settings(database_url=Secret("postgresql://db/x")), SITES)
    assert own.database_url is None
    assert own.egress_allow == "127.0.7.1:4000,127.0.7.2:4001"
    assert own.given == {"data_dir", "egress_allow"}


def test_the_demo_may_also_reach_what_the_user_allowed():
    own = demo_settings(Settings(egress_allow="127.0.0.1:9000, 10.0.0.0/8:443"), SITES)
    entries = EgressPolicy.from_text(own.egress_allow).entries
    assert entries == (*SITES, "127.0.0.1:9000", "10.0.0.0/8:443")
