"""Tables that fit a terminal, from values alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from siteatlas.cli.terminal.output import Column, ColumnKind, cell_text
from siteatlas.cli.terminal.tables import (
    GAP,
    fit_table,
    relative_time,
    shared_origin,
    shorten_end,
    shorten_middle,
)

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
SHOP = "https://shop.example"


def fitted(columns: list[Column], rows: list[list[object]], width: int = 80):
    return fit_table(columns, rows, width=width, now=NOW, text_of=cell_text)


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(seconds=2), "just now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=1), "1 min ago"),
        (timedelta(hours=2, minutes=59), "2 h ago"),
        (timedelta(days=3, hours=5), "3 d ago"),
        (timedelta(days=61), "2026-09-16"),
        (timedelta(minutes=-5), "in 5 min"),
        (timedelta(days=-1), "in 1 d"),
    ],
)
def test_a_time_is_shown_as_its_distance_from_now(ago: timedelta, words: str):
    assert relative_time(NOW - ago, NOW) == words


def test_a_long_url_keeps_its_two_ends():
    short = shorten_middle("/products/category/" + "x" * 80 + "/red-shoes.html", 30)
    assert len(short) == 30
    assert short.startswith("/products/c…")
    assert short.endswith("/red-shoes.html")


def test_a_text_that_fits_is_left_alone():
    assert shorten_middle("/about", 6) == "/about"
    assert shorten_end("/about", 6) == "/about"


def test_a_long_text_keeps_its_beginning():
    assert shorten_end("no_sitemap, timeout", 11) == "no_sitemap…"


@pytest.mark.parametrize("width", range(1, 12))
@pytest.mark.parametrize("shorten", [shorten_end, shorten_middle])
def test_wide_characters_are_shortened_by_the_cells_they_take(shorten, width: int):
    assert cell_len(shorten("商品目録のページ", width)) <= width


@pytest.mark.parametrize("width", [31, 58, 59])
def test_many_wide_characters_use_the_room_there_is(width: int):
    short = shorten_middle("商" * 30, width)
    assert width - 3 <= cell_len(short) <= width


def test_the_host_that_all_urls_share_is_in_the_heading_once():
    columns = [Column("URL", kind=ColumnKind.URL), Column("SITEMAP", kind=ColumnKind.URL)]
    rows: list[list[object]] = [[f"{SHOP}/{n}", f"{SHOP}/sitemap.xml"] for n in range(2)]
    table = fitted(columns, rows)
    assert [column.name for column in table.columns] == [f"URL ({SHOP})", "SITEMAP"]
    assert table.cells == [["/0", "/sitemap.xml"], ["/1", "/sitemap.xml"]]


@pytest.mark.parametrize(
    "urls",
    [
        [f"{SHOP}/1"],
        [f"{SHOP}/1", "https://other.example/1"],
        [f"{SHOP}/1", SHOP],
        ["https://[bad/1", "https://[bad/2"],
        ["-", "-"],
        [],
    ],
)
def test_urls_without_a_common_host_stay_whole(urls: list[str]):
    assert shared_origin(urls) is None


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_table_is_never_wider_than_the_terminal(width: int):
    columns = [
        Column("URL", kind=ColumnKind.URL),
        Column("STATUS", kind=ColumnKind.STATUS),
        Column("URLS", right=True, kind=ColumnKind.COUNT),
        Column("ERROR"),
    ]
    rows = [["https://a.example/" + "x" * n, "partial", 10**n, "e" * n] for n in range(1, 9)]
    rows.append(["https://a.example/" + "y" * 300, "failed", 1, "z" * 300])
    table = fitted(columns, rows, width)
    assert sum(table.widths) + GAP * (len(columns) - 1) <= width
    for row in table.cells:
        assert all(cell_len(cell) <= size for cell, size in zip(row, table.widths, strict=True))
    assert {row[1] for row in table.cells} == {"partial", "failed"}


def test_a_column_for_wide_terminals_is_left_out_of_narrow_ones():
    columns = [Column("ID"), Column("SITEMAP", from_width=100)]
    assert [column.name for column in fitted(columns, [[1, "a"]], 99).columns] == ["ID"]
    assert fitted(columns, [[1, "a"]], 100).cells == [["1", "a"]]


def test_numbers_and_times_are_written_for_people():
    columns = [
        Column("URLS", kind=ColumnKind.COUNT),
        Column("SEEN", kind=ColumnKind.AGE),
        Column("LASTMOD", kind=ColumnKind.DATE),
        Column("NEXT", kind=ColumnKind.AGE),
    ]
    table = fitted(columns, [[20000, NOW - timedelta(hours=2), NOW, None]])
    assert table.cells == [["20,000", "2 h ago", "2026-11-16", "-"]]
