"""Cells of CSV that a spreadsheet shows and never calculates."""

from __future__ import annotations

import pytest

from siteatlas.text import csv_cell, is_plain_csv


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "\tharmless",
        "  =1",
        "\u00a0=1",
        "\ufeff=1",
        "＝1",
        "＋1",
        "－1",
        "＠1",
        " ＝1",
        "first line\n=1",
        "first line\r\n  @x",
    ],
)
def test_a_formula_is_marked_as_text(text: str):
    assert csv_cell(text) == f'"\'{text}"'


@pytest.mark.parametrize("text", ["", "https://a.example/=1", "a-b", "1+1", "x\ny"])
def test_other_text_stays_as_it_is(text: str):
    assert csv_cell(text) == f'"{text}"'


def test_quotation_marks_are_doubled():
    assert csv_cell('a"b') == '"a""b"'


@pytest.mark.parametrize("url", ["=1", 'https://a.example/"', "https://a.example/\x1b", "/path"])
def test_what_needs_more_than_quotes_is_noticed(url: str):
    assert is_plain_csv(["https://a.example/"])
    assert not is_plain_csv(["https://a.example/", url])
