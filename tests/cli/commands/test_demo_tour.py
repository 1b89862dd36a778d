"""The commands that the demo prints: real addresses, and lines that fit a small terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from siteatlas.cli.commands.demo import invitation, program_name
from siteatlas.demo.server import DemoServer

ADDRESS = "http://127.0.0.1:54321"


async def lines(*, changing: bool = True) -> list[str]:
    async with DemoServer() as server:
        data_dir = Path("/home/some-person/.local/share/siteatlas-demo")
        program = ".venv/bin/siteatlas"
        return invitation(ADDRESS, server.sites, data_dir, program, changing=changing)


async def test_the_invitation_fits_eighty_columns():
    assert max(map(len, await lines())) <= 80


async def test_the_invitation_says_who_submits_the_repeated_scans():
    own_scans = "The demo submits the repeated scans"
    assert any(line.startswith(own_scans) for line in await lines())
    assert not any(line.startswith(own_scans) for line in await lines(changing=False))


async def test_the_descriptions_of_the_sites_fit_eighty_columns():
    async with DemoServer() as server:
        assert max(len(site.description) for site in server.sites) <= 70


async def test_a_data_directory_with_a_blank_is_quoted():
    async with DemoServer() as server:
        text = "\n".join(invitation(ADDRESS, server.sites, Path("/my data"), "siteatlas"))
    assert "SITEATLAS_DATA_DIR='/my data'" in text


def test_a_program_on_the_path_is_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "siteatlas"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_name(str(program)) == "siteatlas"


def test_a_program_outside_the_path_is_called_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_name(".venv/bin/siteatlas") == ".venv/bin/siteatlas"


def test_a_module_is_called_through_its_interpreter():
    assert program_name("/somewhere/cli/__main__.py") == f"{sys.executable} -m siteatlas.cli"
