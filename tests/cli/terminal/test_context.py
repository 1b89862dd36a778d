"""How much a command logs."""

from __future__ import annotations

import logging

import pytest

from siteatlas.cli.terminal.context import ColorChoice, begin, current, prepare
from siteatlas.errors import ConfigurationError


def level_after_prepare(**arguments: str) -> int:
    prepare(**arguments)
    return logging.getLogger().level


def test_a_command_logs_warnings_and_a_service_what_it_does():
    assert level_after_prepare() == logging.WARNING
    assert level_after_prepare(log_level="info") == logging.INFO


def test_the_environment_wins_over_what_is_usual(monkeypatch):
    monkeypatch.setenv("SITEATLAS_LOG_LEVEL", "error")
    assert level_after_prepare(log_level="info") == logging.ERROR


def test_verbosity_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("SITEATLAS_LOG_LEVEL", "error")
    begin(1, quiet=False, color=ColorChoice.AUTO)
    assert level_after_prepare() == logging.INFO


def test_the_debug_level_shows_traces(monkeypatch):
    monkeypatch.setenv("SITEATLAS_LOG_LEVEL", "debug")
    prepare()
    assert current().trace


def test_a_flag_is_a_setting():
    assert prepare(port=8123).port == 8123
    with pytest.raises(ConfigurationError):
        prepare(port=-1)
