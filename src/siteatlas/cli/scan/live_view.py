"""The progress of a scan on stderr: a tree and a bar on a terminal, otherwise occasional lines.

Redraws the state of the runner a few times per second, whether or not anything has changed.
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

from siteatlas.aio import background_task
from siteatlas.cli.scan.output import describe
from siteatlas.cli.scan.runner import ScanRun, ScanRunner
from siteatlas.cli.terminal.context import current
from siteatlas.cli.terminal.output import console_for, counted, is_terminal, print_message
from siteatlas.scanner.report import ReportBuilder
from siteatlas.text import printable

PLAIN_LINE_SECONDS = 10.0
MAX_NAMED = 3


class LiveView:
    """The progress of a `ScanRunner` on stderr."""

    def __init__(self, runner: ScanRunner) -> None:
        self._runner = runner
        self._restore_sequence = b""

    @asynccontextmanager
    async def show_progress(self, *, data_on_terminal: bool) -> AsyncIterator[None]:
        """Show the progress of the running scans on stderr until the block ends."""
        live = can_redraw_progress(data_on_terminal=data_on_terminal)
        # `[?25h` shows the cursor.
        self._restore_sequence = b"\x1b[?25h\n" if live else b"\n" * data_on_terminal
        try:
            async with background_task(
                self._draw() if live else _print_progress_lines(self._runner)
            ):
                yield
        finally:
            self._restore_sequence = b""

    def restore_terminal(self) -> None:
        """Leave the live view as the process ends: show the cursor, start a new line."""
        os.write(2, self._restore_sequence)

    async def _draw(self) -> None:
        console = console_for(sys.stderr)
        with Live(
            console=console, transient=True, auto_refresh=False, redirect_stdout=False
        ) as picture:
            while True:
                picture.update(drawn(self._runner, console.height), refresh=True)
                await asyncio.sleep(0.2)


def can_redraw_progress(*, data_on_terminal: bool) -> bool:
    """Whether the live view of a scan may redraw itself on stderr.

    Not while data is written to the same terminal or to a pipe, whose reader may be a pager.
    """
    if current().quiet or data_on_terminal or not is_terminal(sys.stderr):
        return False
    try:
        return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:
        return False


async def _print_progress_lines(runner: ScanRunner) -> None:
    while True:
        await asyncio.sleep(PLAIN_LINE_SECONDS)
        for run in runner.active:
            print_message(f"{run.target.name}: {counts(run)}{awaited_words(run.builder)}")


def awaited_words(builder: ReportBuilder) -> str:
    """Which documents hold the scan up."""
    parts = [
        f"{verb} {_first_documents(urls)}"
        for verb, urls in (
            ("reading", list(builder.open)),
            ("waiting for", list(builder.requested)),
        )
        if urls
    ]
    if not parts and builder.robots is None:
        parts = ["waiting for robots.txt"]
    return "".join(f"; {part}" for part in parts)


def _first_documents(urls: list[str]) -> str:
    more = len(urls) - MAX_NAMED
    return ", ".join(urls[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def counts(run: ScanRun) -> str:
    """How far a scan is, in numbers."""
    found, seconds = run.builder.report, run.elapsed
    rate = round(found.url_count / seconds) if seconds else 0
    expected = counted(run.builder.documents_expected, "document")
    speed = f"{rate:,} a second, " if rate else ""
    return (
        f"{len(found.sitemaps):,} of {expected}, {counted(found.url_count, 'URL')}, "
        f"{speed}{seconds:.0f} s"
    )


def drawn(runner: ScanRunner, height: int) -> RenderableType:
    """The picture of this moment, not higher than the terminal."""
    runs = list(runner.active)
    parts: list[RenderableType] = []
    if runner.ended:
        parts.append(Text(f"{counted(len(runner.ended), 'site')} done"))
    # Room for the bar, the prompt and what a terminal may wrap.
    room = max(3, (height - 4) // max(len(runs), 1) - 2)
    for run in runs:
        parts.append(_text(f"{run.target.name}  {_found(run.builder)}", "bold"))
        parts.extend(_text(line) for line in tree_lines(run.builder, room))
        parts.append(_bar(run))
    return Group(*parts)


def tree_lines(builder: ReportBuilder, room: int) -> list[str]:
    """Indexes, what is being read, and what was read last, in at most `room` lines."""
    read = builder.report.sitemaps
    roots = [sitemap for sitemap in read if sitemap.parent is None]
    leaves = [sitemap for sitemap in read if sitemap.parent is not None]
    reading = [
        f"{'  ' if o.parent else ''}{o.url}  {counted(o.url_count, 'URL')} …"
        for o in builder.open.values()
    ]
    above = [describe(sitemap) for sitemap in roots][-max(1, room // 2) :]
    left = room - len(above) - len(reading) - 1
    last = leaves[len(leaves) - left :] if 0 < left < len(leaves) else leaves[: max(left, 0)]
    hidden = len(leaves) - len(last) + len(roots) - len(above)
    more = [f"  … {counted(hidden, 'sitemap')} more read"] if hidden else []
    return [*above, *more, *(f"  {describe(s)}" for s in last), *reading][: room + 1]


def _found(builder: ReportBuilder) -> str:
    robots = builder.robots
    if robots is None:
        return "looking for sitemaps"
    if robots.sitemap_urls:
        return f"robots.txt names {counted(len(robots.sitemap_urls), 'sitemap')}"
    return "robots.txt names no sitemap; looking in the usual places"


def _bar(run: ScanRun) -> Table:
    done, known = len(run.builder.report.sitemaps), max(run.builder.documents_expected, 1)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=known, completed=done, width=24), _text(counts(run)))
    return grid


def _text(line: str, style: str = "") -> Text:
    return Text(printable(line), style=style, no_wrap=True, overflow="ellipsis")
