"""How far a scan is, on stderr: a growing tree and a bar on a terminal, else a line now and then.

Draws what the conductor knows a few times a second, whether or not anything happens.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from siteatlas.aio.background import beside
from siteatlas.cli.scanning.runner import Conductor, ScanRun
from siteatlas.cli.scanning.sitemap_tree import describe
from siteatlas.cli.terminal.choices import counted
from siteatlas.cli.terminal.invocation import current
from siteatlas.cli.terminal.output import console_for, is_terminal, printable, say
from siteatlas.scanner.report import ReportKeeper

REDRAW_SECONDS = 0.2
PLAIN_LINE_SECONDS = 10.0
BAR_WIDTH = 24
# Room for the bar, the prompt and what a terminal may wrap.
LINES_BELOW = 4
LEAST_LINES = 3
MOST_NAMED = 3
STDERR = 2
SHOW_CURSOR = b"\x1b[?25h"


class View:
    """The progress of a conductor on stderr."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._farewell = b""

    @asynccontextmanager
    async def shown(self, *, data_on_terminal: bool) -> AsyncIterator[None]:
        """Show the progress for as long as the block runs."""
        live = can_move(data_on_terminal=data_on_terminal)
        self._farewell = SHOW_CURSOR + b"\n" if live else b"\n" * data_on_terminal
        try:
            async with beside(self._draw() if live else _tell(self._conductor)):
                yield
        finally:
            self._farewell = b""

    def abandon(self) -> None:
        """Give the terminal back in the midst of anything: with its cursor, on a new line."""
        os.write(STDERR, self._farewell)

    async def _draw(self) -> None:
        console = console_for(sys.stderr)
        with Live(
            console=console, transient=True, auto_refresh=False, redirect_stdout=False
        ) as picture:
            while True:
                picture.update(drawn(self._conductor, console.height), refresh=True)
                await asyncio.sleep(REDRAW_SECONDS)


def can_move(*, data_on_terminal: bool) -> bool:
    """Whether a picture may move on stderr.

    Not while data run over the same terminal, and not beside a pipe: its reader may be a pager.
    """
    if current().quiet or data_on_terminal or not is_terminal(sys.stderr):
        return False
    try:
        return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:
        return False


async def _tell(conductor: Conductor) -> None:
    while True:
        await asyncio.sleep(PLAIN_LINE_SECONDS)
        for run in conductor.active:
            say(f"{run.target.name}: {_counts(run)}{awaited_words(run.keeper)}")


def awaited_words(keeper: ReportKeeper) -> str:
    """Which documents hold the scan up."""
    parts = [
        f"{verb} {_some_of(urls)}"
        for verb, urls in (("reading", list(keeper.open)), ("waiting for", list(keeper.requested)))
        if urls
    ]
    if not parts and keeper.robots is None:
        parts = ["waiting for robots.txt"]
    return "".join(f"; {part}" for part in parts)


def _some_of(urls: list[str]) -> str:
    more = len(urls) - MOST_NAMED
    return ", ".join(urls[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def drawn(conductor: Conductor, height: int) -> RenderableType:
    """The picture of this moment, not higher than the terminal."""
    runs = list(conductor.active)
    parts: list[RenderableType] = []
    if conductor.ended:
        parts.append(Text(f"{counted(len(conductor.ended), 'site')} done"))
    room = max(LEAST_LINES, (height - LINES_BELOW) // max(len(runs), 1) - 2)
    for run in runs:
        parts.append(_text(f"{run.target.name}  {_found(run.keeper)}", "bold"))
        parts.extend(_text(line) for line in tree_lines(run.keeper, room))
        parts.append(_bar(run))
    return Group(*parts)


def tree_lines(keeper: ReportKeeper, room: int) -> list[str]:
    """Indexes, what is being read, and what was read last, in at most `room` lines."""
    read = keeper.report.sitemaps
    roots = [sitemap for sitemap in read if sitemap.parent is None]
    leaves = [sitemap for sitemap in read if sitemap.parent is not None]
    reading = [
        f"{'  ' if o.parent else ''}{o.url}  {counted(o.url_count, 'URL')} …"
        for o in keeper.open.values()
    ]
    above = [describe(sitemap) for sitemap in roots][-max(1, room // 2) :]
    left = room - len(above) - len(reading) - 1
    last = leaves[len(leaves) - left :] if 0 < left < len(leaves) else leaves[: max(left, 0)]
    hidden = len(leaves) - len(last) + len(roots) - len(above)
    more = [f"  … {counted(hidden, 'sitemap')} more read"] if hidden else []
    return [*above, *more, *(f"  {describe(s)}" for s in last), *reading][: room + 1]


def _found(keeper: ReportKeeper) -> str:
    robots = keeper.robots
    if robots is None:
        return "looking for sitemaps"
    if robots.sitemap_urls:
        return f"robots.txt names {counted(len(robots.sitemap_urls), 'sitemap')}"
    return "robots.txt names no sitemap; looking in the usual places"


def _bar(run: ScanRun) -> Table:
    done, known = len(run.keeper.report.sitemaps), max(run.keeper.documents_expected, 1)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=known, completed=done, width=BAR_WIDTH), _text(_counts(run)))
    return grid


def _counts(run: ScanRun) -> str:
    found, seconds = run.keeper.report, run.elapsed
    rate = round(found.url_count / seconds) if seconds else 0
    expected = counted(run.keeper.documents_expected, "document")
    speed = f"{rate:,} a second, " if rate else ""
    return (
        f"{len(found.sitemaps):,} of {expected}, {counted(found.url_count, 'URL')}, "
        f"{speed}{seconds:.0f} s"
    )


def _text(line: str, style: str = "") -> Text:
    return Text(printable(line), style=style, no_wrap=True, overflow="ellipsis")
