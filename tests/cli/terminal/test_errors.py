"""Errors become at most two lines and an exit code."""

from __future__ import annotations

import json

import pytest

from siteatlas.cli.terminal.context import ColorChoice, begin
from siteatlas.cli.terminal.errors import advice_for, exit_with
from siteatlas.cli.terminal.output import print_warning
from siteatlas.errors import (
    DatabaseUnavailable,
    EmbeddedServerError,
    NoSitemap,
    OutputClosed,
    PortTaken,
    SiteatlasError,
    error_classes,
)
from siteatlas.logs import configure_logging


@pytest.mark.parametrize(
    ("error", "code"),
    [(PortTaken(), 2), (NoSitemap(), 3), (DatabaseUnavailable(), 4), (SiteatlasError(), 1)],
)
def test_the_exit_code_is_that_of_the_error(error: SiteatlasError, code: int):
    with pytest.raises(SystemExit) as ending:
        exit_with(error)
    assert ending.value.code == code


def test_an_error_is_one_line_what_and_one_line_what_to_do(capsys):
    with pytest.raises(SystemExit):
        exit_with(PortTaken("Another program already listens on 127.0.0.1:8000."))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "siteatlas: port_taken: Another program already listens on 127.0.0.1:8000."
    assert "--port" in second


@pytest.mark.parametrize("kind", error_classes())
def test_no_error_needs_more_than_two_lines(kind: type[SiteatlasError], capsys):
    with pytest.raises(SystemExit):
        exit_with(kind())
    fewest = 0 if kind is OutputClosed else 1
    assert fewest <= len(capsys.readouterr().err.splitlines()) <= 2


def test_text_from_outside_in_a_message_cannot_steer_the_terminal(capsys):
    with pytest.raises(SystemExit):
        exit_with(NoSitemap("\x1b[2J\nforged: line"))
    captured = capsys.readouterr().err
    assert "\x1b" not in captured
    assert captured.startswith("siteatlas: no_sitemap: \\x1b[2J forged: line\n")


def test_an_error_of_ours_is_found_inside_a_group_of_tasks(capsys):
    with pytest.raises(SystemExit) as ending:
        exit_with(ExceptionGroup("tasks", [DatabaseUnavailable()]))
    assert ending.value.code == 4
    assert "database_unavailable" in capsys.readouterr().err


def test_an_unknown_error_says_that_it_is_our_fault_without_a_trace(capsys):
    with pytest.raises(SystemExit) as ending:
        exit_with(ValueError("odd\nvalue"))
    assert ending.value.code == 1
    captured = capsys.readouterr().err
    assert captured.splitlines()[0] == "siteatlas: internal_error: ValueError: odd value"
    assert "Traceback" not in captured


def test_a_trace_is_shown_when_asked_for(capsys):
    begin(2, quiet=False, color=ColorChoice.AUTO)
    with pytest.raises(SystemExit):
        exit_with(ValueError("odd"))
    assert "ValueError: odd" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DatabaseUnavailable("It is\naway."), "database_unavailable", "It is away."),
        (ValueError("odd"), "internal_error", "ValueError: odd"),
    ],
)
def test_in_json_an_error_is_one_object(error, code, said, monkeypatch, capsys):
    monkeypatch.setenv("SITEATLAS_LOG_FORMAT", "json")
    with pytest.raises(SystemExit):
        exit_with(error)
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"]) == ("command_error", "error")
    assert (told["error_code"], told["error"]) == (code, said)
    assert told["advice"]


def test_in_json_a_trace_is_an_object_too(monkeypatch, capsys):
    monkeypatch.setenv("SITEATLAS_LOG_FORMAT", "json")
    begin(2, quiet=False, color=ColorChoice.AUTO)
    with pytest.raises(SystemExit):
        exit_with(ValueError("odd"))
    trace, _ = map(json.loads, capsys.readouterr().err.splitlines())
    assert "ValueError: odd" in trace["exception"]


def test_in_json_words_are_objects_whatever_the_level(capsys):
    configure_logging("error", "json")
    print_warning("Starting")
    told = json.loads(capsys.readouterr().err)
    assert (told["event"], told["text"]) == ("notice", "Starting")


def test_a_settings_file_can_ask_for_json_too(tmp_path, capsys):
    (tmp_path / "siteatlas.toml").write_text('log_format = "json"\nport = "odd"\n')
    with pytest.raises(SystemExit):
        exit_with(DatabaseUnavailable())
    assert json.loads(capsys.readouterr().err)["error_code"] == "database_unavailable"


def test_advice_comes_from_the_nearest_class():
    assert advice_for(PortTaken()) != advice_for(EmbeddedServerError())
    assert advice_for(SiteatlasError()) is None
