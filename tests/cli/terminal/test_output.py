"""Tables, JSON and text from outside, as they reach people and programs."""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import orjson
import pytest

from siteatlas.cli.scan.output import csv_lines, object_lines
from siteatlas.cli.terminal.context import ColorChoice, begin
from siteatlas.cli.terminal.output import (
    Column,
    ColumnKind,
    cell_text,
    console_for,
    json_bytes,
    plain_table,
    print_message,
    terminal_safe_json,
    url_lines,
    write_csv,
    write_details,
    write_json_lines,
    write_table,
)
from siteatlas.cli.terminal.tables import drawn_table, status_text, terminal_table
from siteatlas.scanner.events import EntryColumns
from siteatlas.text import printable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def coloured(stream: io.StringIO) -> bool:
    console_for(stream).print("word", style="red")
    return "\x1b[" in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("line\nbreak\ttab", "line\\x0abreak\\x09tab"),
        ("\x9b31m", "\\x9b31m"),
        ("left\u202eright", "left\\u202eright"),
        ("\u061c\u200b\ufeff\u2060x", "\\u061c\\u200b\\ufeff\\u2060x"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("ordinary grüße", "ordinary grüße"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(text: str, shown: str):
    assert printable(text) == shown


def test_all_bidi_controls_and_invisible_format_characters_are_escaped():
    joiners = {"\u200c", "\u200d"}
    shown = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]")
    hieroglyphs = {chr(point) for point in range(0x13430, 0x13440)}
    formats = {chr(point) for point in range(0x110000) if unicodedata.category(chr(point)) == "Cf"}
    invisible = {mark for mark in formats - joiners - hieroglyphs if not shown.match(mark)}
    assert len(invisible) > 100
    assert [mark for mark in invisible if printable(mark) == mark] == []
    text = "".join(sorted(invisible))
    assert json_bytes(text).isascii()
    assert orjson.loads(json_bytes(text)) == text


BIDI_CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("mark", BIDI_CONTROLS)
def test_no_line_of_data_is_reordered(mark: str, capfdbinary):
    url = f"https://a.example/{mark}x"
    columns = EntryColumns([url], [None], [None], [None], [None])
    assert url_lines([url]).isascii()
    assert csv_lines("s", columns).isascii()
    assert object_lines("s", columns).isascii()
    write_csv(["url"], [[url]], head=False)
    assert capfdbinary.readouterr().out.isascii()


def test_a_url_is_the_same_in_stored_and_scanned_csv(capfdbinary):
    url = "https://a.example/\u200b\u200d\u2060\ufeff\u061c\x1b"
    columns = EntryColumns([url], [None], [None], [None], [None])
    write_csv(["url"], [[url]], head=False)
    cell = capfdbinary.readouterr().out.rstrip()
    assert csv_lines("s", columns).split(b",")[0] == cell
    assert cell == '"https://a.example/\u200b\u200d\u2060\ufeff\\u061c\\x1b"'.encode()


def test_markup_of_a_site_stays_text_in_a_drawn_table():
    stream = Terminal()
    console_for(stream).print(drawn_table([Column("URL")], [["[red]https://a.example/[/red]"]]))
    assert "[red]https://a.example/[/red]" in stream.getvalue()


def test_cells_are_short_and_the_same_everywhere():
    two_hours_east = datetime(2026, 1, 2, 5, 0, tzinfo=timezone(timedelta(hours=2)))
    assert cell_text(None) == "-"
    assert cell_text(True) == "yes"
    assert cell_text(0.5) == "0.5"
    assert cell_text(two_hours_east) == "2026-01-02 03:00:00Z"
    assert cell_text({"a": [1]}) == '{"a":[1]}'


def test_a_plain_table_is_aligned_and_has_no_drawing():
    table = plain_table(
        [Column("NAME"), Column("URLS", right=True)], [["shop", "7"], ["x", "1200"]]
    )
    assert table == "NAME  URLS\nshop     7\nx     1200\n"


def test_an_empty_plain_table_is_its_head():
    assert plain_table([Column("NAME")], []) == "NAME\n"


def test_a_table_is_plain_where_no_person_reads_it(capsys):
    write_table([Column("NAME")], [["a\x1b[31m"]])
    assert capsys.readouterr().out == "NAME\na\\x1b[31m\n"


def test_details_stand_one_a_line(capsys):
    write_details([("id", 1), ("status", None)])
    assert capsys.readouterr().out == "id      1\nstatus  -\n"


def test_words_go_to_stderr_and_can_be_silenced(capsys):
    print_message("working")
    begin(0, quiet=True, color=ColorChoice.AUTO)
    print_message("not this")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "working\n"


def test_a_message_is_one_write_so_that_lines_of_several_processes_are_not_mixed(monkeypatch):
    written: list[str] = []
    stream = io.StringIO()
    monkeypatch.setattr(stream, "write", written.append, raising=False)
    monkeypatch.setattr("sys.stderr", stream)
    print_message("one")
    print_message("two")
    assert written == ["one\n", "two\n"]


def test_json_has_the_times_of_the_api():
    assert (
        json_bytes({"at": datetime(2026, 1, 2, tzinfo=UTC)}) == b'{"at":"2026-01-02T00:00:00Z"}\n'
    )


def test_json_takes_the_identifiers_of_the_database_driver():
    class DriverUuid(UUID):
        pass

    ident = DriverUuid("5905e9fe-6c61-4694-b09a-6602017b000a")
    assert orjson.loads(json_bytes([ident])) == ["5905e9fe-6c61-4694-b09a-6602017b000a"]


def test_json_cannot_steer_a_terminal_and_keeps_its_meaning():
    value = {"error": "\x1b[2J \x9b31m \u202e ü"}
    encoded = json_bytes(value)
    assert not set("\x1b\x9b\u202e") & set(encoded.decode())
    assert orjson.loads(encoded) == value


def test_terminal_safe_json_leaves_plain_json_alone():
    assert terminal_safe_json(b'{"a":1}') == b'{"a":1}'


@dataclass(frozen=True, slots=True)
class Item:
    name: str


def test_json_lines_are_one_object_a_line(capfdbinary):
    write_json_lines([Item("a"), Item("b")])
    assert capfdbinary.readouterr().out == b'{"name":"a"}\n{"name":"b"}\n'


def test_a_terminal_gets_colour_and_a_pipe_does_not():
    assert coloured(Terminal())
    assert not coloured(io.StringIO())


def test_no_color_wins_over_force_color(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert coloured(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    console_for(stream).print("word", style="red")
    assert "31m" not in stream.getvalue()


def test_the_flag_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    begin(0, quiet=False, color=ColorChoice.ALWAYS)
    assert coloured(io.StringIO())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    begin(0, quiet=False, color=ColorChoice.NEVER)
    assert not coloured(Terminal())


def test_a_row_takes_one_line_of_a_terminal_of_80_columns():
    stream = Terminal()
    columns = [Column("URL", kind=ColumnKind.URL), Column("ERROR")]
    table = terminal_table(columns, [["https://a.example/" + "x" * 200, "no_sitemap"]], 80)
    console = console_for(stream)
    console.width = 80
    console.print(table)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert all(len(line) <= 80 + len("\x1b[1m\x1b[0m") * 3 for line in lines)


def test_partial_and_failed_have_a_colour_and_a_word():
    styles = {word: status_text(word).style for word in ("partial", "failed", "completed")}
    assert len(set(styles.values())) == 3
    assert status_text("partial").plain == "partial"
