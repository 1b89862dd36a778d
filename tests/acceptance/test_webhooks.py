"""`siteatlas webhooks`: what the commands print and change, and their exit codes."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.commands import Machine

pytestmark = pytest.mark.slow

RECEIVER = "https://hooks.example.com/siteatlas"
UNKNOWN = "0d4f5cbb-6c5c-4b8e-9c0f-5d6a4f3a2b11"


def test_a_new_webhook_is_listed_and_can_be_changed(machine: Machine):
    created = machine.run("webhooks", "create", RECEIVER, "--site", "www.example.com")
    assert created.returncode == 0, created.stderr
    assert created.stdout.startswith("whsec_")
    assert "not shown again" in created.stderr
    (listed,) = machine.json("webhooks", "list")["items"]
    assert (listed["url"], listed["domains"]) == (RECEIVER, ["example.com"])
    assert "whsec_" not in json.dumps(listed)
    change = ("webhooks", "change", listed["id"], "--all-sites", "--type", "scan.failed")
    changed = machine.json(*change)
    assert (changed["domains"], changed["types"]) == (None, ["scan.failed"])
    assert machine.json("webhooks", "disable", listed["id"])["status"] == "disabled"
    assert machine.json("webhooks", "enable", listed["id"])["status"] == "active"
    table = machine.run("webhooks", "list").stdout
    assert "hooks.example.com" in table


def test_a_webhook_is_shown_rotated_replayed_and_deleted(machine: Machine):
    ident = machine.json("webhooks", "create", RECEIVER)["id"]
    assert machine.run("webhooks", "rotate", ident).stdout.startswith("whsec_")
    shown = machine.run("webhooks", "show", ident).stdout
    assert "hooks.example.com" in shown
    assert "previous secret until" in shown
    assert machine.json("webhooks", "replay", ident, "--since", "0")["delivered_seq"] == 0
    assert machine.json("webhooks", "deliveries", ident)["items"] == []
    refused = machine.run("webhooks", "delete", ident)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert machine.run("webhooks", "delete", ident, "--yes").returncode == 0
    assert machine.run("webhooks", "show", ident).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "http://127.0.0.1:9/"), 2),
        (("create", RECEIVER, "--type", "scan_failed"), 2),
        (("show", "nonsense"), 2),
        (("show", UNKNOWN), 1),
        (("test", UNKNOWN), 1),
        (("change", UNKNOWN), 2),
        (("change", UNKNOWN, "--site", "a.example", "--all-sites"), 2),
        (("replay", UNKNOWN, "--since", "yesterday"), 2),
        (("delete", UNKNOWN, "--yes"), 1),
    ],
)
def test_what_cannot_be_done_is_an_error(machine: Machine, arguments: tuple[str, ...], code: int):
    result = machine.run("webhooks", *arguments)
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert result.stderr.strip()
