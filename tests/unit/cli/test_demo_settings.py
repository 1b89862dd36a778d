"""The demo keeps to itself."""

from __future__ import annotations

from pathlib import Path

from siteatlas.cli.commands.demo import demo_data_dir, demo_settings
from siteatlas.setting_types import Secret
from siteatlas.settings import Settings, default_data_dir


def test_the_demo_has_a_data_directory_of_its_own():
    usual = default_data_dir()
    assert demo_data_dir(usual) == usual.with_name(f"{usual.name}-demo")
    assert demo_data_dir(Path("/srv/atlas")) == Path("/srv/atlas/demo")


def test_the_demo_uses_its_embedded_database_and_may_scan_only_its_sites():
    settings = Settings(database_url=Secret("postgresql://db/x"), egress_allow="10.0.0.0/8:443")
    own = demo_settings(settings, ["127.0.7.1:4000", "127.0.7.2:4001"])
    assert own.database_url is None
    assert own.egress_allow == "127.0.7.1:4000,127.0.7.2:4001"
    assert own.given == {"data_dir", "egress_allow"}
