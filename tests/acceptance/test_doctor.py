"""`siteatlas doctor` as an operator meets it: lines, JSON and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.commands import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_set_up_database_is_ok(database_url: str, tmp_path: Path):
    machine = Machine(tmp_path, {"DATABASE_URL": database_url, "SITEATLAS_PORT": "0"})
    result = machine.run("doctor", "--offline")
    assert result.returncode == 0, result.stdout
    checks = [line.split()[:2] for line in result.stdout.splitlines()]
    assert ["ok", "schema"] in checks
    assert ["ok", "privileges"] in checks
    assert {state for state, _ in checks} == {"ok"}


def test_a_database_that_is_away_does_not_end_the_other_checks(tmp_path: Path):
    nowhere = f"postgresql://nobody@/nothing?host={tmp_path}"
    machine = Machine(tmp_path, {"DATABASE_URL": nowhere, "SITEATLAS_PORT": "0"})
    result = machine.run("doctor", "--offline", "--json")
    assert result.returncode == 1
    found = json.loads(result.stdout)
    assert found["status"] == "fail"
    states = {item["check"]: item["state"] for item in found["items"]}
    assert states == {"database": "fail", "disk": "ok", "access": "ok", "port": "ok"}
    assert "DATABASE_URL" in found["items"][0]["advice"]


def test_an_invalid_site_does_not_end_the_other_checks(database_url: str, tmp_path: Path):
    machine = Machine(tmp_path, {"DATABASE_URL": database_url, "SITEATLAS_PORT": "0"})
    result = machine.run("doctor", "--site", "not a site", "--json")
    assert result.returncode == 1
    states = {item["check"]: item["state"] for item in json.loads(result.stdout)["items"]}
    assert {check for check, state in states.items() if state == "fail"} == {"site"}
    assert {"database", "disk", "access", "port"} <= states.keys()
