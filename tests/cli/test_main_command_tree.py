"""The tree of commands: complete, quick to ask for help, helpful when misspelt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from siteatlas import __version__
from siteatlas.cli.main import COMMANDS, app, load_command
from siteatlas.cli.terminal.filters import MOMENT_FORMS


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_the_help_lists_every_command_once_twelve_of_them_before_more(runner: CliRunner):
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    listed = re.findall(r"^  (\w+) +[A-Z]", result.output.partition("Start:\n")[2], re.MULTILINE)
    assert listed == list(COMMANDS)
    first, _, more = result.output.partition("\nMore:\n")
    assert "\n  doctor " in first
    assert more.startswith(f"  {listed[12]} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(runner: CliRunner, name: str):
    result = runner.invoke(app, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"siteatlas {name}" in result.output or f"root {name}" in result.output


@pytest.mark.parametrize(
    ("noun", "verbs"),
    [
        ("jobs", {"list", "show", "watch", "retry", "cancel"}),
        (
            "domains",
            {"add", "tag", "set", "list", "show", "explain"}
            | {"pause", "resume", "release", "remove"},
        ),
        ("scheduler", {"run-once", "status"}),
        ("db", {"upgrade", "current", "backup", "restore", "verify", "upgrade-server"}),
        ("config", {"show"}),
    ],
)
def test_a_noun_has_its_verbs(noun: str, verbs: set[str]):
    assert set(getattr(load_command(noun), "commands", {})) == verbs


def test_the_version_is_printed(runner: CliRunner):
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith(f"siteatlas {__version__} ")


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(runner: CliRunner):
    result = runner.invoke(app, ["scna"])
    assert result.exit_code == 2
    assert "'scan'" in result.stderr


def test_a_wrong_option_is_a_usage_error(runner: CliRunner):
    assert runner.invoke(app, ["scan", "a.example", "--format", "poem"]).exit_code == 2


def test_an_error_of_a_command_passes_the_border(runner: CliRunner):
    result = runner.invoke(app, ["scan", "ftp://a.example"])
    assert result.exit_code == 2
    assert result.stderr.startswith("siteatlas: address_scheme: ")
    assert result.stdout == ""


def test_a_private_address_is_refused_before_anything_is_sent(runner: CliRunner):
    result = runner.invoke(app, ["scan", "http://127.0.0.1:9/"])
    assert result.exit_code == 2
    assert result.stderr.startswith("siteatlas: egress_denied: ")


def test_a_wrong_rule_for_private_addresses_is_named(runner: CliRunner):
    result = runner.invoke(app, ["scan", "a.example", "--allow", "not a rule"])
    assert result.exit_code == 2
    assert result.stderr.startswith("siteatlas: configuration_invalid: --allow: 'not a rule' ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("urls --limit 0", "'--limit': must be at least 1."),
        ("jobs watch --timeout -1", "'--timeout': must be at least 0."),
        ("jobs watch --timeout x", "'--timeout': 'x' is not a number."),
        ("compare a.example --from abc", "'--from': 'abc' is not a whole number."),
        ("webhooks test abc", "'ID': 'abc' is not a UUID."),
        ("changes --since 2026-13-45", "'--since': there is no such date: 2026-13-45."),
        ("webhooks replay ID --since soon", f"'--since': 'soon' is none of these: {MOMENT_FORMS}."),
        ("changes --since tomorrow", f"'--since': 'tomorrow' is none of these: {MOMENT_FORMS}."),
        ("urls --has x", "'--has': x: use some of images, news, video, alternates."),
        ("scan a.example --format x", "'--format': 'x' is not one of 'table',"),
    ],
)
def test_a_value_that_is_refused_is_explained_in_our_words(
    runner: CliRunner, line: str, message: str
):
    result = runner.invoke(app, line.split())
    assert result.exit_code == 2
    assert f"Invalid value for {message}" in result.stderr


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("urls", "urls [OPTIONS] [SITE]\n"),
        ("jobs watch", "jobs watch [OPTIONS] [JOB]\n"),
        ("domains add", "domains add [OPTIONS] [SITE...]\n"),
        ("domains tag", "domains tag [OPTIONS] SITE [TAG...]\n"),
        ("scan", "scan [OPTIONS] SITE...\n"),
        ("help", "help [OPTIONS] [COMMAND...]\n"),
    ],
)
def test_a_usage_line_names_its_arguments_plainly(runner: CliRunner, words: str, usage: str):
    assert usage in runner.invoke(app, [*words.split(), "--help"]).output


@pytest.mark.parametrize(
    "words", [(), *((name,) for name in COMMANDS), ("jobs", "list"), ("domains", "add")]
)
def test_the_help_names_values_and_not_the_types_of_python(
    runner: CliRunner, words: tuple[str, ...]
):
    printed = runner.invoke(app, [*words, "--help"]).output
    assert re.findall(r"<.*?>", printed) == []


@pytest.mark.parametrize("words", [("-q", "scan"), ("scan", "-q")])
def test_quiet_may_stand_before_and_after_scan(
    runner: CliRunner, tmp_path: Path, words: tuple[str, ...]
):
    file = tmp_path / "list.txt"
    file.write_text("https://a.example/1\n")
    result = runner.invoke(app, [*words, str(file), "--format", "urls"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "https://a.example/1\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_completion_is_an_option_of_the_root_alone(runner: CliRunner, name: str):
    assert "--install-completion" not in runner.invoke(app, [name, "--help"]).output
    assert "--install-completion" in runner.invoke(app, ["--help"]).output


def test_completion_is_shown_for_the_shell_that_is_named(runner: CliRunner):
    shown = runner.invoke(app, ["--show-completion", "fish"])
    assert (shown.exit_code, shown.output.split()[0]) == (0, "complete")
    assert runner.invoke(app, ["--show-completion", "nosuch"]).exit_code == 1


def test_a_filter_lists_its_words_in_the_help(runner: CliRunner):
    listed = runner.invoke(app, ["jobs", "list", "--help"]).output
    assert "pending|processing|completed|failed|cancelled" in listed
