"""Two demos never share a data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from siteatlas.cli.commands.demo import only_demo
from siteatlas.errors import DemoRunning

ADDRESS = "http://127.0.0.1:54321"


def test_a_second_demo_is_refused_with_the_address_of_the_first(tmp_path: Path):
    data_dir = tmp_path / "demo"
    with only_demo(data_dir) as store_address:
        store_address(ADDRESS)
        with pytest.raises(DemoRunning) as refused, only_demo(data_dir):
            pass
    assert f"already running at {ADDRESS}/." in refused.value.message
    assert refused.value.exit_code == 2


def test_a_demo_without_an_address_yet_is_refused_too(tmp_path: Path):
    with only_demo(tmp_path), pytest.raises(DemoRunning, match="running\\."), only_demo(tmp_path):
        pass


def test_a_demo_starts_again_once_the_other_has_ended(tmp_path: Path):
    with only_demo(tmp_path) as store_address:
        store_address(ADDRESS)
    with only_demo(tmp_path), pytest.raises(DemoRunning) as refused, only_demo(tmp_path):
        pass
    assert ADDRESS not in refused.value.message
    with only_demo(tmp_path / "other"), only_demo(tmp_path):
        pass
