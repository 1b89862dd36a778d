"""Lists that are read page by page."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import typer
from typer.testing import CliRunner

from siteatlas.catalog.paging import MAX_LIMIT, Page
from siteatlas.cli.terminal.output import Column, ListFormat
from siteatlas.cli.terminal.paged_list import (
    ListRequest,
    TableLayout,
    read_pages,
    with_list_options,
    write_list,
)

SHAPE: TableLayout[int] = TableLayout(
    [Column("N", right=True, value=lambda number: number)], "Nothing.", "Nothing matches."
)


@dataclass(frozen=True, slots=True)
class Record:
    name: str
    seen_at: datetime
    watched: bool
    reasons: list[str]
    error: str | None = None


RECORDS: TableLayout[Record] = TableLayout(
    [Column("NAME", value="name")], "Nothing.", "Nothing matches.", Record
)
SEEN = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ExaminedPage(Page[Record]):
    examined: int


def pages_of(*pages: list[Record], examined: int | None = None):
    async def fetch(_: int, cursor: str | None) -> Page[Record]:
        number = int(cursor or 0)
        more = number + 1 < len(pages)
        behind = str(number + 1) if more else None
        if examined is None:
            return Page(pages[number], behind)
        return ExaminedPage(pages[number], behind, examined)

    return fetch


class Numbers:
    def __init__(self, total: int) -> None:
        self.total = total
        self.limits: list[int] = []

    async def fetch(self, limit: int, cursor: str | None) -> Page[int]:
        self.limits.append(limit)
        start = int(cursor or 0)
        items = list(range(start, min(start + limit, self.total)))
        end = start + len(items)
        return Page(items, str(end) if end < self.total else None)


async def read(numbers: Numbers, limit: int | None) -> list[int]:
    return [n async for page in read_pages(numbers.fetch, limit, None) for n in page.items]


async def test_a_limit_within_one_page_asks_once():
    numbers = Numbers(50)
    assert await read(numbers, 10) == list(range(10))
    assert numbers.limits == [10]


async def test_a_limit_beyond_one_page_is_met_exactly():
    numbers = Numbers(5000)
    assert len(await read(numbers, MAX_LIMIT + 500)) == MAX_LIMIT + 500
    assert numbers.limits == [MAX_LIMIT, 500]


async def test_no_limit_reads_the_whole_list():
    assert len(await read(Numbers(2500), None)) == 2500


async def test_json_is_the_object_of_the_api(capfd):
    await write_list(ListRequest(ListFormat.JSON, 2, None), Numbers(5).fetch, SHAPE)
    assert json.loads(capfd.readouterr().out) == {"items": [0, 1], "next_cursor": "2"}


async def test_json_lines_have_one_item_each(capfd):
    await write_list(ListRequest(ListFormat.JSONL, None, None), Numbers(3).fetch, SHAPE)
    assert capfd.readouterr().out == "0\n1\n2\n"


async def test_a_cut_table_says_on_stderr_how_to_go_on(capfd):
    await write_list(ListRequest(ListFormat.TABLE, 2, None), Numbers(5).fetch, SHAPE)
    captured = capfd.readouterr()
    assert captured.out == "N\n0\n1\n"
    assert "--cursor 2" in captured.err


async def test_an_empty_list_says_so_on_stderr(capfd):
    await write_list(ListRequest(ListFormat.TABLE, 2, None), Numbers(0).fetch, SHAPE)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == "Nothing.\n"


@pytest.mark.parametrize(("options", "limit"), [(["--all"], None), (["--limit", "7"], 7)])
def test_the_shared_options_make_a_request(options: list[str], limit: int | None):
    requests: list[ListRequest] = []
    app = typer.Typer()

    @app.command()
    @with_list_options
    def numbers(*, request: ListRequest) -> None:
        requests.append(request)

    assert CliRunner().invoke(app, ["--json", *options]).exit_code == 0
    assert requests == [ListRequest(ListFormat.JSON, limit, None)]


@pytest.mark.parametrize(
    ("filters", "words"), [((None, None), "Nothing.\n"), ((None, False), "Nothing matches.\n")]
)
async def test_an_empty_list_says_whether_a_filter_made_it_so(filters, words: str, capfd):
    shape = SHAPE.filtered_by(*filters)
    await write_list(ListRequest(ListFormat.TABLE, 2, None), Numbers(0).fetch, shape)
    assert capfd.readouterr().err == words


async def printed_csv(capfd, *pages: list[Record]) -> list[list[str]]:
    await write_list(ListRequest(ListFormat.CSV, None, None), pages_of(*pages), RECORDS)
    return list(csv.reader(io.StringIO(capfd.readouterr().out)))


async def test_csv_has_full_values_under_one_line_of_names(capfd):
    first = Record("a.example", SEEN, watched=True, reasons=["timeout"])
    second = Record("b.example", SEEN, watched=False, reasons=[], error="lost")
    assert await printed_csv(capfd, [first], [second]) == [
        ["name", "seen_at", "watched", "reasons", "error"],
        ["a.example", "2026-01-02T00:00:00Z", "true", '["timeout"]', ""],
        ["b.example", "2026-01-02T00:00:00Z", "false", "[]", "lost"],
    ]


async def test_no_cell_of_csv_is_a_formula(capfd):
    evil = Record("=1+1", SEEN, watched=True, reasons=[], error="@SUM(A1)")
    rows = await printed_csv(capfd, [evil])
    assert (rows[1][0], rows[1][4]) == ("'=1+1", "'@SUM(A1)")


async def test_an_empty_list_as_csv_still_names_its_columns(capfd):
    assert await printed_csv(capfd, []) == [["name", "seen_at", "watched", "reasons", "error"]]


async def test_json_counts_the_rows_that_a_filter_examined(capfd):
    record = Record("a", SEEN, watched=True, reasons=[])
    fetch = pages_of([], [record], examined=10_000)
    await write_list(ListRequest(ListFormat.JSON, None, None), fetch, RECORDS)
    answer = json.loads(capfd.readouterr().out)
    assert (len(answer["items"]), answer["examined"]) == (1, 20_000)
