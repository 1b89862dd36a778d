"""The progress line."""

from __future__ import annotations

import io
import sys

from siteatlas.cli.terminal.tables import PLAIN_LINE_SECONDS, ProgressLine


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_a_line_comes_every_ten_seconds(capsys):
    clock = Clock()
    with ProgressLine(clock) as progress:
        progress.show(lambda: "too early")
        clock.now += PLAIN_LINE_SECONDS
        progress.show(lambda: "half done")
        progress.show(lambda: "too early again")
    captured = capsys.readouterr()
    assert captured.err == "half done\n"
    assert captured.out == ""


def test_the_line_knows_how_long_the_work_takes():
    clock = Clock()
    progress = ProgressLine(clock)
    clock.now += 2.5
    assert progress.seconds == 2.5


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_two_terminals_the_line_moves_on_stderr_and_leaves_no_control_to_the_site(monkeypatch):
    words, data = Terminal(), Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", words)
    monkeypatch.setattr(sys, "stdout", data)
    clock = Clock()
    with ProgressLine(clock) as progress:
        clock.now += 1
        progress.show(lambda: "half [bold]done\x07")
    assert "half [bold]done\\x07" in words.getvalue()
    assert data.getvalue() == ""


def test_with_one_terminal_only_the_line_does_not_move(monkeypatch):
    words = Terminal()
    monkeypatch.setattr(sys, "stderr", words)
    with ProgressLine(Clock()) as progress:
        progress.show(lambda: "too early")
    assert words.getvalue() == ""
