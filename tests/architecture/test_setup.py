"""What the Makefile installs: no development tools to run the service, and it prints the size."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def plan(project: Path, target: str, folder: Path) -> str:
    """What `make` would do for a target where no environment exists yet."""
    command = ["make", "--dry-run", f"VENV={folder / 'env'}", target]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    return result.stdout


def locked(project: Path, name: str) -> dict[str, str]:
    return dict(LOCKED.findall((project / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("target", ["demo", "run", "dist"])
def test_running_installs_no_tool_of_developers(project: Path, tmp_path: Path, target: str):
    steps = plan(project, target, tmp_path)
    assert "-r requirements.lock" in steps
    assert "requirements-dev.lock" not in steps


@pytest.mark.parametrize("target", ["test", "check", "format", "docs"])
def test_developing_installs_both(project: Path, tmp_path: Path, target: str):
    steps = plan(project, target, tmp_path)
    assert steps.index("-r requirements.lock") < steps.index("-r requirements-dev.lock")


def test_the_size_is_printed_before_anything_is_installed(project: Path, tmp_path: Path):
    steps = plan(project, "demo", tmp_path)
    assert re.search(r"\d+ MB", steps[: steps.index("-m venv")])


def test_the_duration_of_the_tests_is_printed_before_they_run(project: Path, tmp_path: Path):
    steps = plan(project, "test", tmp_path)
    assert "minutes" in steps[: steps.index("-m pytest")]


@pytest.mark.parametrize("smaller", ["requirements.lock", "requirements-build.lock"])
def test_the_versions_for_developers_contain_those_for_running(project: Path, smaller: str):
    everything = locked(project, "requirements-dev.lock").items()
    assert locked(project, smaller).items() <= everything


def test_an_environment_that_is_ready_is_not_touched(project: Path, tmp_path: Path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / ".ready").touch()
    assert "install" not in plan(project, "demo", tmp_path)
