"""Commands that cannot start say so in one sentence, with the right exit code."""

from __future__ import annotations

import socket

import pytest
from typer.testing import CliRunner

from siteatlas.cli.hosting.workers import probe_listener
from siteatlas.cli.main import app
from siteatlas.cli.terminal.errors import advice_for
from siteatlas.errors import PortTaken
from siteatlas.settings import Settings


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_taken_port_is_one_sentence_and_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["serve", "--port", port])
    assert result.exit_code == 2
    error, advice = result.stderr.splitlines()
    assert error.startswith("siteatlas: port_taken: ")
    assert f"127.0.0.1:{port}" in error
    assert advice == "Choose another port with --port; 0 picks a free port."


def test_a_taken_metrics_port_is_chosen_with_another_option():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(metrics_port=taken.getsockname()[1])
        with pytest.raises(PortTaken) as raised, probe_listener(settings):
            pass
    advice = "Choose another port with --metrics-port; 0 picks a free port."
    assert advice_for(raised.value) == advice


def test_names_are_not_served():
    result = CliRunner().invoke(app, ["serve", "--host", "example.com", "--port", "0"])
    assert result.exit_code == 2
    assert result.stderr.startswith("siteatlas: bind_refused: example.com ")
    assert "siteatlas keys create" in result.stderr


@pytest.mark.parametrize("command", [["jobs", "list"], ["db", "current"], ["serve", "--port", "0"]])
def test_a_database_that_is_away_ends_with_4(command: list[str], unused_port: int, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", f"postgresql://u:secret@127.0.0.1:{unused_port}/x")
    monkeypatch.setenv("SITEATLAS_DATABASE_WAIT_SECONDS", "0")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 4
    assert result.stderr.startswith("siteatlas: database_unavailable: ")
    assert "secret" not in result.stderr
    assert len(result.stderr.splitlines()) == 2


def test_a_database_address_that_is_none_ends_with_2(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "mysql://localhost/x")
    result = CliRunner().invoke(app, ["jobs", "list"])
    assert result.exit_code == 2
    assert result.stderr.startswith("siteatlas: configuration_invalid: DATABASE_URL ")
    assert "postgresql://" in result.stderr


@pytest.mark.parametrize(
    "command", [["serve"], ["worker"], ["jobs", "list"], ["scan", "a.example"]]
)
def test_a_wrong_setting_ends_with_2(command: list[str], monkeypatch):
    monkeypatch.setenv("SITEATLAS_CONCURRENCY", "many")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "SITEATLAS_CONCURRENCY" in result.stderr
    assert len(result.stderr.splitlines()) == 2


def test_a_wrong_allow_list_is_named_with_its_origin(monkeypatch):
    monkeypatch.setenv("SITEATLAS_EGRESS_ALLOW", "foo:x")
    result = CliRunner().invoke(app, ["jobs", "list"])
    assert result.exit_code == 2
    origin = "SITEATLAS_EGRESS_ALLOW (from environment SITEATLAS_EGRESS_ALLOW) "
    assert result.stderr.startswith(f"siteatlas: configuration_invalid: {origin}")
    assert "'foo:x'" in result.stderr


@pytest.mark.parametrize(
    ("entry", "remedy"),
    [
        ("10.0.0.0/4:80", " /8."),
        ("0.0.0.0/0:80", " /8."),
        ("[::/8]:80", " fc00::/7"),
        ("10.0.0.1/8:80", " 10.0.0.0/8"),
        ("10.0.0.0/33:80", " CIDR[:PORT] "),
    ],
)
def test_a_range_that_cannot_be_allowed_is_refused_with_one_that_can(entry: str, remedy: str):
    result = CliRunner().invoke(app, ["scan", "example.com", "--allow", entry])
    assert result.exit_code == 2
    said = result.stderr.splitlines()[0]
    assert said.startswith(f"siteatlas: configuration_invalid: --allow: '{entry}' ")
    assert remedy in said


@pytest.mark.parametrize("name", ["bö→", "two\nlines", "bell\x07"])
def test_a_user_agent_that_cannot_be_sent_is_refused_with_a_message(name: str):
    result = CliRunner().invoke(app, ["scan", "example.com", "--user-agent", name])
    assert result.exit_code == 2
    assert "configuration_invalid: SITEATLAS_USER_AGENT (from flag) " in result.stderr
    assert "pattern" not in result.stderr


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("--type", "standard, index, text, rss, atom"),
        ("--status", "pending, completed, failed, complete, error"),
    ],
)
def test_an_unknown_word_of_a_filter_is_refused_before_anything_is_opened(option: str, known: str):
    result = CliRunner().invoke(app, ["sitemaps", "example.com", option, "bogus"])
    assert result.exit_code == 2
    (said,) = result.stderr.splitlines()
    assert said.startswith("siteatlas: input_invalid: ")
    assert "'bogus'" in said
    assert f": {known}." in said
