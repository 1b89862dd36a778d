"""`siteatlas webhooks`: what the commands print and change, and their exit codes."""

from __future__ import annotations

import json

import pytest

from siteatlas.cli.commands.webhooks import ADD_FIRST, SAME_SETTING
from siteatlas.demo.server import DemoSite
from tests.fixtures.commands import Machine
from tests.fixtures.waiting import block_until

pytestmark = pytest.mark.slow

RECEIVER = "https://hooks.example.com/siteatlas"
ALLOW_IT = "If this is your own receiver, allow it with SITEATLAS_EGRESS_ALLOW=127.0.0.1:9"
Sites = dict[str, DemoSite]
UNKNOWN = "0d4f5cbb-6c5c-4b8e-9c0f-5d6a4f3a2b11"


def test_a_new_webhook_is_listed_and_can_be_changed(machine: Machine):
    created = machine.run("webhooks", "create", RECEIVER, "--site", "www.example.com")
    assert created.returncode == 0, created.stderr
    assert created.stdout.startswith("whsec_")
    assert "not shown again" in created.stderr
    (listed,) = machine.json("webhooks", "list")["items"]
    assert (listed["url"], listed["domains"]) == ("https://hooks.example.com/…", ["example.com"])
    assert "whsec_" not in json.dumps(listed)
    change = ("webhooks", "change", listed["id"], "--all-sites", "--type", "scan.failed")
    changed = machine.json(*change)
    assert (changed["domains"], changed["types"]) == (None, ["scan.failed"])
    assert machine.json("webhooks", "disable", listed["id"])["status"] == "disabled"
    assert machine.json("webhooks", "enable", listed["id"])["status"] == "active"
    table = machine.run("webhooks", "list").stdout
    assert "hooks.example.com" in table


@pytest.mark.full
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


@pytest.mark.full
def test_a_receiver_that_only_the_setting_permits_needs_it_in_the_service_too(machine: Machine):
    setting = {"SITEATLAS_EGRESS_ALLOW": "127.0.0.1:9"}
    allowing = Machine(machine.data_dir, {**machine.extra, **setting})
    created = allowing.run("webhooks", "create", "http://127.0.0.1:9/")
    assert SAME_SETTING in created.stderr
    ident = created.stderr.partition("Created webhook ")[2].partition(".")[0]
    tested = allowing.run("webhooks", "test", ident)
    assert tested.stderr.splitlines() == ["Not delivered (connection_failed).", SAME_SETTING]
    refused = machine.run("webhooks", "test", ident)
    assert refused.stderr.splitlines()[-2:] == ["Not delivered (egress_denied).", ALLOW_IT]
    assert SAME_SETTING not in allowing.run("webhooks", "create", RECEIVER).stderr
    changed = allowing.run("webhooks", "change", ident, "--url", "http://127.0.0.1:9/x")
    assert SAME_SETTING in changed.stderr


def test_a_refused_receiver_comes_with_the_setting_that_permits_it(machine: Machine):
    refused = machine.run("webhooks", "create", "http://127.0.0.1:9/")
    assert (refused.returncode, refused.stdout) == (2, "")
    message, advice = refused.stderr.splitlines()[-2:]
    assert message.startswith("siteatlas: egress_denied: ")
    assert advice == ALLOW_IT


@pytest.mark.full
def test_a_new_webhook_reports_which_of_its_sites_are_not_stored(machine: Machine):
    assert machine.run("domains", "add", "stored.example").returncode == 0
    both = ("--site", "stored.example", "--site", "nosuch.example")
    created = machine.run("webhooks", "create", RECEIVER, *both)
    assert created.returncode == 0
    assert f"Not stored yet: nosuch.example. {ADD_FIRST}" in created.stderr.splitlines()
    known = machine.run("webhooks", "create", RECEIVER, *both[:2])
    assert "Not stored yet" not in known.stderr


@pytest.mark.full
def test_a_test_message_reports_why_the_service_fails_to_deliver(machine: Machine, sites: Sites):
    allowed = f"127.0.0.1:9,{machine.environment['SITEATLAS_EGRESS_ALLOW']}"
    created = machine.run(
        *("webhooks", "create", "http://127.0.0.1:9/", "--json"), SITEATLAS_EGRESS_ALLOW=allowed
    )
    ident = json.loads(created.stdout)["id"]
    with machine.service() as service:
        service.scan(next(iter(sites.values())))
        block_until(lambda: machine.json("webhooks", "show", ident)["status"] == "failing")
    tested = machine.run("webhooks", "test", ident, SITEATLAS_EGRESS_ALLOW=allowed)
    assert "last result: egress_denied." in tested.stderr.splitlines()[-1]


@pytest.mark.full
def test_an_address_that_is_not_allowed_is_refused_without_a_log_line(machine: Machine):
    ident = machine.json("webhooks", "create", RECEIVER)["id"]
    private = "http://127.0.0.1:9/"
    for arguments in (("create", private), ("change", ident, "--url", private)):
        error, advice = machine.run("webhooks", *arguments).stderr.splitlines()
        assert error.startswith("siteatlas: egress_denied: ")
        assert "SITEATLAS_EGRESS_ALLOW" in advice


@pytest.mark.full
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
