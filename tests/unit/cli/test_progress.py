"""The line that tells how far the work is."""

from __future__ import annotations

from siteatlas.cli.progress import PLAIN_LINE_SECONDS, ProgressLine


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
