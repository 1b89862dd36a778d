"""The sizes that the README and the Makefile state are those of what is built and installed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

MEGABYTE = 1_000_000
TOLERANCE = 0.1
WHEEL = re.compile(r"a ([\d.]+) MB wheel")
SETUP = re.compile(r"(\d+) MB(?: to download, | and uses )(\d+) MB on disk")
LOCKED = re.compile(r"^([a-z0-9-]+)==", re.MULTILINE)
# What `python -m venv` installs besides.
OF_VENV = {"pip", "setuptools"}


def size_on_disk(name: str) -> int:
    """The bytes that an installed distribution uses; 0 if this platform does not need it."""
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        return 0
    files = (Path(str(installed.locate_file(file))) for file in installed.files or ())
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file())


@pytest.mark.slow
def test_the_readme_states_the_size_of_the_wheel(project: Path, tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    stated = WHEEL.search((project / "README.md").read_text(encoding="utf-8"))
    assert stated
    assert float(stated[1]) * MEGABYTE == pytest.approx(wheel.stat().st_size, rel=TOLERANCE)


@pytest.mark.slow
def test_the_readme_states_the_size_of_an_environment(project: Path):
    locks = (project / name for name in ("requirements.lock", "requirements-build.lock"))
    names = {name for lock in locks for name in LOCKED.findall(lock.read_text(encoding="utf-8"))}
    used = sum(size_on_disk(name) for name in names | OF_VENV)
    stated = SETUP.search((project / "README.md").read_text(encoding="utf-8"))
    assert stated
    assert int(stated[2]) * MEGABYTE == pytest.approx(used, rel=TOLERANCE)


@pytest.mark.parametrize("page", ["Makefile", "docs/tutorial/first-scan.md"])
def test_all_pages_state_the_same_sizes(project: Path, page: str):
    stated = [
        SETUP.findall((project / name).read_text(encoding="utf-8")) for name in ("README.md", page)
    ]
    assert len(stated[0]) == 1
    assert stated[0] == stated[1]
