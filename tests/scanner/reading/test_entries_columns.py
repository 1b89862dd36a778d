"""Entries column by column: the operations that keep the columns in step."""

from __future__ import annotations

from datetime import UTC, datetime

from siteatlas.scanner.events import EntryColumns

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


def columns_of(*urls: str, texts: bool = True) -> EntryColumns:
    count = len(urls)
    return EntryColumns(
        list(urls),
        [MOMENT] * count,
        ["daily"] * count,
        [0.5] * count,
        [{"of": url} for url in urls],
        [f"date of {url}" for url in urls] if texts else [],
    )


def test_the_head_holds_the_first_entries_in_every_column():
    assert columns_of("a", "b", "c").head(2) == columns_of("a", "b")


def test_the_head_of_few_entries_is_all_of_them():
    columns = columns_of("a", "b")
    assert columns.head(2) is columns


def test_a_mask_keeps_its_entries_in_every_column():
    assert columns_of("a", "b", "c").where([True, False, True]) == columns_of("a", "c")


def test_dates_as_listed_may_be_left_out():
    columns = columns_of("a", "b", texts=False)
    assert columns.head(1) == columns_of("a", texts=False)
    assert columns.where([False, True]) == columns_of("b", texts=False)


def test_rows_hold_the_values_of_one_entry_and_what_is_added():
    rows = list(columns_of("a", "b").rows([1, 2]))
    assert rows == [
        ("a", MOMENT, "daily", 0.5, {"of": "a"}, 1),
        ("b", MOMENT, "daily", 0.5, {"of": "b"}, 2),
    ]
