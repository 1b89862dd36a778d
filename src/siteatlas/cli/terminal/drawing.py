"""Draws on a terminal with rich: colour, tables as wide as the terminal, and progress.

What goes to a file or a pipe is written by `output.py`, which needs nothing of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from siteatlas.cli.terminal.columns import Column, ColumnKind
from siteatlas.cli.terminal.context import ColorChoice, current
from siteatlas.cli.terminal.output import STATUS_STYLES, cell_text, is_terminal
from siteatlas.cli.terminal.tables import GAP, fit_table


def console_for(stream: TextIO) -> Console:
    """A console on `stream` that honours the colour setting."""
    match current().color:
        case ColorChoice.ALWAYS:
            return Console(file=stream, force_terminal=True, no_color=False, color_system="256")
        case ColorChoice.NEVER:
            return Console(file=stream, no_color=True, color_system=None)
        case ColorChoice.AUTO:
            return Console(file=stream)


def terminal_width(stream: TextIO) -> int | None:
    """The width of the terminal behind `stream`; None where there is none."""
    return console_for(stream).width if is_terminal(stream) else None


def draw_line(stream: TextIO, text: str, style: str) -> None:
    """One line in a colour or weight; the terminal wraps it."""
    console_for(stream).print(Text(text, style=style), soft_wrap=True)


def draw_table(stream: TextIO, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """A table that fits the terminal behind `stream`."""
    console = console_for(stream)
    console.print(terminal_table(columns, rows, console.width))


def terminal_table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int
) -> Table:
    """A table of one line a row that fits a terminal of this width."""
    now = datetime.now(UTC)
    fitted = fit_table(columns, rows, width=width, now=now, text_of=cell_text)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, size in zip(fitted.columns, fitted.widths, strict=True):
        table.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            width=size,
            no_wrap=column.kind is not ColumnKind.PROSE,
            overflow="fold",
        )
    for row in fitted.cells:
        table.add_row(*_in_colour(fitted.columns, row))
    return table


def _in_colour(columns: Sequence[Column], row: Sequence[str]) -> Iterable[Text]:
    """The cells of a row for a terminal table; a status has its colour."""
    for column, cell in zip(columns, row, strict=True):
        yield status_text(cell) if column.kind is ColumnKind.STATUS else Text(cell)


def status_text(word: str) -> Text:
    """The word of a status in its colour."""
    return Text(word, style=STATUS_STYLES.get(word, ""))


def drawn_table(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> Table:
    """A table for a terminal; cells are text, never markup."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            Text(column.name), justify="right" if column.right else "left", overflow="fold"
        )
    for row in cells:
        table.add_row(*_in_colour(columns, row))
    return table
