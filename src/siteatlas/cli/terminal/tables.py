"""Tables that fit a terminal: one line per row, relative times, shortened URLs.

Owns what is omitted if space is short. Plain tables, CSV and JSON are written elsewhere, with full
values.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TextIO
from urllib.parse import urlsplit

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.live import Live
from rich.table import Table
from rich.text import Text

from siteatlas.cli.terminal.output import (
    STATUS_STYLES,
    Column,
    ColumnKind,
    can_show_progress,
    cell_text,
    console_for,
    is_terminal,
    print_message,
)
from siteatlas.text import printable

GAP = 2
ELLIPSIS = "…"
MIN_URL_WIDTH = 16
MIN_TEXT_WIDTH = 8
MIN_PROSE_WIDTH = 12
HEAD_SHARE = 0.4
JUST_NOW_SECONDS = 5
MAX_RELATIVE_DAYS = 60
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class FittedTable:
    """Columns and cells that fit, all cells on one line each."""

    columns: Sequence[Column]
    cells: Sequence[Sequence[str]]
    widths: Sequence[int]


def relative_time(moment: datetime, now: datetime) -> str:
    """`2 h ago` or `in 3 d`; a date if that is long ago or far ahead."""
    seconds = (now - moment).total_seconds()
    distance = abs(seconds)
    if distance < JUST_NOW_SECONDS:
        return "just now"
    if distance > MAX_RELATIVE_DAYS * 86400:
        return f"{moment.astimezone(UTC):%Y-%m-%d}"
    word, size = next(unit for unit in _UNITS if distance >= unit[1])
    text = f"{int(distance // size)} {word}"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def shorten_middle(text: str, width: int) -> str:
    """Shorten a text wider than `width` in the middle; the end of a URL is the most useful part."""
    if cell_len(text) <= width:
        return text
    room = max(0, width - 1)
    head = set_cell_size(text, int(room * HEAD_SHARE)).rstrip()
    return head + ELLIPSIS + _last_cells(text, room - cell_len(head))


def shorten_end(text: str, width: int) -> str:
    """The beginning of a text that is wider than `width`."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + ELLIPSIS


def _last_cells(text: str, width: int) -> str:
    end = text[max(0, len(text) - width) :] if width > 0 else ""
    while cell_len(end) > width:
        end = end[1:]
    return end


def fit_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    *,
    width: int,
    now: datetime,
    text_of: Callable[[object], str],
) -> FittedTable:
    """The columns and cells of a table that is at most `width` wide, if that is possible."""
    shown = [number for number, column in enumerate(columns) if column.from_width <= width]
    heads = [columns[number] for number in shown]
    cells = [[_cell(columns[n].kind, row[n], now, text_of) for n in shown] for row in rows]
    heads, cells = _without_shared_origin(heads, cells)
    widths = _widths(heads, cells, width)
    return FittedTable(
        [
            replace(head, name=_shorten(head.kind, head.name, size))
            for head, size in zip(heads, widths, strict=True)
        ],
        [
            [
                _shorten(head.kind, cell, size)
                for head, cell, size in zip(heads, row, widths, strict=True)
            ]
            for row in cells
        ],
        widths,
    )


def _cell(kind: ColumnKind, value: object, now: datetime, text_of: Callable[[object], str]) -> str:
    """A value as text for a terminal table: relative times, short dates, grouped digits."""
    if isinstance(value, datetime) and kind is ColumnKind.AGE:
        return relative_time(value, now)
    if isinstance(value, datetime) and kind is ColumnKind.DATE:
        return f"{value.astimezone(UTC):%Y-%m-%d}"
    if isinstance(value, int) and not isinstance(value, bool) and kind is ColumnKind.COUNT:
        return f"{value:,}"
    return text_of(value)


def _shorten(kind: ColumnKind, text: str, width: int) -> str:
    """Shorten a table cell to its column width: a URL in the middle, other text at the end."""
    if kind is ColumnKind.PROSE:
        return text
    return (shorten_middle if kind is ColumnKind.URL else shorten_end)(text, width)


def _without_shared_origin(
    heads: list[Column], cells: list[list[str]]
) -> tuple[list[Column], list[list[str]]]:
    """Move the scheme and host that all URLs of a column share to its head, once per table."""
    named: set[str] = set()
    for number, head in enumerate(heads):
        origin = (
            shared_origin([row[number] for row in cells]) if head.kind is ColumnKind.URL else None
        )
        if origin is None:
            continue
        for row in cells:
            row[number] = row[number][len(origin) :]
        if origin not in named:
            heads[number] = replace(head, name=f"{head.name} ({origin})")
            named.add(origin)
    return heads, cells


def shared_origin(urls: Sequence[str]) -> str | None:
    """The scheme and host of two or more URLs that have no other; None if there is none."""
    if len(urls) < 2:  # one URL shares nothing
        return None
    origins = {_origin_of_cell(url) for url in urls}
    origin = origins.pop()
    return origin if origin and not origins else None


def _origin_of_cell(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    origin = f"{parts.scheme}://{parts.netloc}"
    usable = parts.scheme and parts.netloc and url.startswith(f"{origin}/")
    return origin if usable else None


def _widths(heads: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widths of the columns: what they need, less what the widest texts can spare."""
    columns = zip([head.name for head in heads], *cells, strict=True)
    widths = [max(map(cell_len, column)) for column in columns]
    floors = [_narrowest(head) for head in heads]
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    for _ in range(excess):
        spare = [n for n, floor in enumerate(floors) if floor is not None and widths[n] > floor]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _narrowest(head: Column) -> int | None:
    """How far a column may be shortened; None if not at all."""
    if head.kind is ColumnKind.URL:
        return MIN_URL_WIDTH
    if head.kind is ColumnKind.PROSE:
        return MIN_PROSE_WIDTH
    return MIN_TEXT_WIDTH if head.kind is ColumnKind.TEXT and not head.right else None


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
