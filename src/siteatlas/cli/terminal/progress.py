"""A progress line: updated in place on a terminal, printed occasionally elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.text import Text

from siteatlas.cli.terminal.drawing import console_for
from siteatlas.cli.terminal.output import can_show_progress, print_message
from siteatlas.safe_text import printable

REDRAW_SECONDS = 0.1
PLAIN_LINE_SECONDS = 10.0


class ProgressLine:
    """A line on stderr. It needs both streams to be terminals to move; then it leaves no trace."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = self._shown = clock()
        self._live: Live | None = None
        if can_show_progress():
            self._live = Live(console=console_for(sys.stderr), transient=True, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Time since the line was made."""
        return self._clock() - self._started

    def show(self, describe: Callable[[], str]) -> None:
        """Show what `describe` says, unless the last line is too young to be replaced."""
        now = self._clock()
        pause = PLAIN_LINE_SECONDS if self._live is None else REDRAW_SECONDS
        if now - self._shown < pause:
            return
        self._shown = now
        if self._live is None:
            print_message(describe())
        else:
            self._live.update(Text(printable(describe())), refresh=True)
