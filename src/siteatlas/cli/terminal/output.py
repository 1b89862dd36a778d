"""Writes results as tables, details, CSV, JSON and JSON lines.

Data goes to stdout, messages go to stderr. Text from outside is escaped here, so that commands do
not have to. What a terminal shows in colour or fitted to its width is drawn by `tables.py`;
elsewhere tables are plain text with full values.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from pathlib import PurePath
from typing import Any, TextIO
from uuid import UUID

import orjson
from rich.console import Console

from siteatlas.cli.terminal.context import ColorChoice, current
from siteatlas.errors import OutputClosed
from siteatlas.logs import NOTICES, get_logger, stderr_is_json
from siteatlas.text import (
    BIDI_CONTROLS,
    DISRUPTIVE,
    INVISIBLE,
    LINE_SEPARATORS,
    csv_cell,
    escape,
    printable,
)


class ColumnKind(Enum):
    """What the values of a column are, which decides how they are shown and shortened.

    Prose is never shortened: it takes as many lines as it needs. A name stays whole on its line.
    """

    TEXT = auto()
    NAME = auto()
    PROSE = auto()
    URL = auto()
    AGE = auto()
    DATE = auto()
    COUNT = auto()
    STATUS = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """The header of a column; numbers are aligned to the right.

    A terminal narrower than `from_width` does not show it; other outputs always do. `value` is the
    field of an item that the column shows, or what it makes of the item.
    """

    name: str
    right: bool = False
    kind: ColumnKind = ColumnKind.TEXT
    from_width: int = 0
    value: str | Callable[[Any], object] = ""

    def of(self, item: object) -> object:
        """What the column shows of an item."""
        return getattr(item, self.value) if isinstance(self.value, str) else self.value(item)


# Data in lines keeps what is only invisible, so that a URL stays the one that was listed.
DISTURBING = re.compile(f"[{DISRUPTIVE}]")
# JSON has escapes that keep the value, so that nothing unprintable has to stay.
BEYOND_JSON = re.compile(rf"[\x7f-\x9f{LINE_SEPARATORS}{BIDI_CONTROLS}{INVISIBLE}]")
JSON_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS
EMPTY_CELL = "-"
# From these widths a terminal has room for more columns.
WIDE = 100
WIDEST = 140
STATUS_STYLES = {
    "completed": "green",
    "processing": "cyan",
    "partial": "yellow",
    "failed": "bold red",
    "cancelled": "dim",
    "cut": "yellow",
    "unread": "bold red",
    "skipped": "dim",
}

log = get_logger(NOTICES)


class ListFormat(StrEnum):
    """The forms of a list."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"


def output_line(text: str) -> str:
    """A value as one line of command output; characters that break or reorder it are escaped."""
    return DISTURBING.sub(escape, text)


def url_lines(urls: list[str]) -> bytes:
    """URLs as the output of a command, one per line; characters that break a line are escaped."""
    if not urls:
        return b""
    joined = "".join(urls)
    plain = joined.isascii() and joined.isprintable()
    if not plain and DISTURBING.search(joined):
        urls = list(map(output_line, urls))
    return ("\n".join(urls) + "\n").encode("utf-8", "backslashreplace")


def cell_text(value: object) -> str:
    """One value of a table, on one line."""
    if value is None or value == "":
        return EMPTY_CELL
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (dict, list, tuple)):
        return printable(orjson.dumps(value, default=str, option=JSON_OPTIONS).decode())
    return printable(str(value))


def counted(number: int, noun: str) -> str:
    """`1 URL`, `1,200 URLs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(share: float) -> str:
    """A share between 0 and 1 for people."""
    return f"{share:.0%}"


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads `stream`."""
    return stream.isatty()


def can_show_progress() -> bool:
    """Whether to show progress: both streams are terminals and `--quiet` was not given."""
    return is_terminal(sys.stdout) and is_terminal(sys.stderr) and not current().quiet


def print_message(text: str, *, style: str = "") -> None:
    """Print a line on stderr unless `--quiet` was given; `style` applies if colour is enabled."""
    if not current().quiet:
        print_warning(text, style=style)


def print_warning(text: str, *, style: str = "") -> None:
    """Print a line on stderr even with `--quiet`; with JSON logs, write it as a log line."""
    if stderr_is_json():
        log.info("notice", text=text)
    elif style and is_terminal(sys.stderr):
        # Late, because rich is needed on a terminal only.
        from siteatlas.cli.terminal.tables import draw_line

        draw_line(sys.stderr, printable(text), style)
    else:
        # In one write, so that lines of several processes are not mixed.
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()


@contextmanager
def _flushed_stdout() -> Iterator[TextIO]:
    """Stdout, flushed after the block; OutputClosed if its reader has gone."""
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        raise OutputClosed from None


def _discard_stdout() -> None:
    """Send what is left on stdout nowhere, so that the end of the process does not complain."""
    with suppress(OSError), open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def write_line(text: str) -> None:
    """Write a line of data on stdout."""
    _write_text(printable(text) + "\n")


def _write_text(text: str) -> None:
    with _flushed_stdout() as stdout:
        stdout.write(text)


def json_bytes(value: object, *, indented: bool = False) -> bytes:
    """JSON as the API writes it; harmless on a terminal."""
    options = JSON_OPTIONS | orjson.OPT_APPEND_NEWLINE
    if indented:
        options |= orjson.OPT_INDENT_2
    return terminal_safe_json(orjson.dumps(value, default=_json_text, option=options))


def _json_text(value: object) -> str:
    if isinstance(value, (UUID, PurePath)):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def terminal_safe_json(encoded: bytes) -> bytes:
    """JSON for command output; characters that could control the terminal are escaped."""
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    text = BEYOND_JSON.sub(_json_escape_for_output, encoded.decode())
    return text.encode()


def _json_escape_for_output(match: re.Match[str]) -> str:
    """The JSON escape of a character that command output must not contain."""
    return json.dumps(match.group())[1:-1]


def write_bytes(data: bytes) -> None:
    """Write raw data on stdout, after all text that was written before."""
    with _flushed_stdout() as stdout:
        stdout.flush()
        stdout.buffer.write(data)
        stdout.buffer.flush()


def write_json(value: object) -> None:
    """Write one JSON object on stdout; indented on a terminal."""
    write_bytes(json_bytes(value, indented=is_terminal(sys.stdout)))


def write_json_lines(items: Iterable[object]) -> None:
    """Write one JSON object per line on stdout."""
    write_bytes(b"".join(map(json_bytes, items)))


def write_csv(names: Sequence[str], rows: Iterable[Sequence[object]], *, head: bool) -> None:
    """Write CSV on stdout: full values, every cell safe to open in a spreadsheet."""
    lines = [",".join(map(csv_cell, names))] if head else []
    lines += [",".join(csv_cell(_csv_text(value)) for value in row) for row in rows]
    write_bytes("".join(f"{line}\r\n" for line in lines).encode("utf-8", "backslashreplace"))


def _csv_text(value: object) -> str:
    """One value as the API writes it; an empty cell for none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return output_line(value)
    if isinstance(value, StrEnum):
        return value.value
    encoded = json_bytes(value).decode().strip()
    return encoded[1:-1] if encoded.startswith('"') else encoded


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """A table: one line a row as wide as the terminal, or full values as plain text elsewhere."""
    if is_terminal(sys.stdout):
        # Late, because rich is needed on a terminal only.
        from siteatlas.cli.terminal.tables import draw_table

        draw_table(sys.stdout, columns, list(rows))
    else:
        _write_text(plain_table(columns, [[cell_text(value) for value in row] for row in rows]))


def plain_table(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> str:
    """A table as plain text: columns separated by two spaces, a header line, full values."""
    names = [column.name for column in columns]
    widths = [max(map(len, values)) for values in zip(names, *cells, strict=True)]
    return "".join(_plain_row(columns, row, widths) for row in (names, *cells))


def _plain_row(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if column.right else cell.ljust(width)
        for column, cell, width in zip(columns, row, widths, strict=True)
    )
    return "  ".join(padded).rstrip() + "\n"


def write_details(pairs: Iterable[tuple[str, object]]) -> None:
    """Write the values of one record on stdout, one per line."""
    shown = [(name, cell_text(value)) for name, value in pairs]
    width = max(len(name) for name, _ in shown)
    _write_text("".join(f"{name.ljust(width)}  {value}\n" for name, value in shown))


def console_for(stream: TextIO) -> Console:
    """A console on `stream` that honours the colour setting."""
    match current().color:
        case ColorChoice.ALWAYS:
            return Console(file=stream, force_terminal=True, no_color=False, color_system="256")
        case ColorChoice.NEVER:
            return Console(file=stream, no_color=True, color_system=None)
        case ColorChoice.AUTO:
            return Console(file=stream)
