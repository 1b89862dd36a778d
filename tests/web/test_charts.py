"""Charts are accessible images: valid SVG, without inline styles, with a text alternative."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from markupsafe import Markup

from siteatlas.web.charts import (
    PeriodBar,
    Scale,
    ScanMark,
    change_bars,
    line_over_time,
    months_histogram,
    scan_strip,
    share_bar,
    small_scan_strip,
    sparkline,
)

START, TODAY = datetime(2026, 3, 1, 8, tzinfo=UTC), date(2026, 11, 19)


def line(values: Sequence[int], days: Sequence[float]) -> Markup:
    points = [(START + timedelta(days=n), value) for n, value in zip(days, values, strict=True)]
    return line_over_time(points, label="URLs over time", head="URLs")


def months(counts: dict[str, int]) -> etree._Element:
    return etree.fromstring(str(months_histogram(counts, TODAY, label="Months")))


SMALL = [
    sparkline([1, 5, 3], label="URLs"),
    scan_strip([ScanMark("ok", 1.0, "first"), ScanMark("fail", 2.0, "second")], label="Scans"),
    small_scan_strip([ScanMark("ok", 1.0, ""), ScanMark("fail", 2.0, "")], label="Scans"),
    share_bar(0.5, label="Share"),
]
LARGE = [
    change_bars([PeriodBar("1 Mar", 5, 0), PeriodBar("2 Mar", 0, 2)], label="Changes"),
    months_histogram({"2025-01": 4, "2025-02": 0}, TODAY, label="Months"),
    line([1000, 1010], [0, 1]),
]


def place(element: etree._Element, name: str) -> float:
    """A coordinate or a length of a drawn element."""
    return float(element.get(name, "nan").rstrip("%"))


def find(element: etree._Element, path: str) -> Any:
    return element.xpath(path)


def rows(figure: etree._Element) -> list[list[str]]:
    return [find(row, "./*/text()") for row in find(figure, ".//tbody/tr")]


def words(image: etree._Element, kind: str) -> list[str | None]:
    return [text.text for text in image.iter("text") if text.get("class") == kind]


@pytest.mark.parametrize("drawn", SMALL)
def test_a_small_chart_is_an_image_with_a_label(drawn: Markup):
    image = etree.fromstring(str(drawn))
    assert image.get("role") == "img"
    assert image.get("aria-label")


@pytest.mark.parametrize("drawn", LARGE)
def test_a_large_chart_has_marks_with_labels_and_a_table(drawn: Markup):
    figure = etree.fromstring(str(drawn))
    (image,) = find(figure, ".//svg[@role='group']")
    marks = find(image, "./g[@class='mark']")
    assert image.get("aria-label")
    assert len(marks) == len(rows(figure)) >= 2
    assert [mark.get("aria-label") for mark in marks] == words(image, "tip")
    assert [mark.get("tabindex") for mark in marks] == ["-1"] * (len(marks) - 1) + ["0"]
    assert len(words(image, "tick")) >= 1


@pytest.mark.parametrize("drawn", SMALL + LARGE)
def test_a_chart_has_no_inline_style(drawn: Markup):
    assert find(etree.fromstring(str(drawn)), "//@style") == []


def test_a_label_cannot_break_out_of_a_chart():
    evil = '"><script>alert(1)</script>'
    for drawn in (sparkline([1, 2], label=evil), change_bars([PeriodBar(evil, 1, 1)], label=evil)):
        assert find(etree.fromstring(str(drawn)), "//*[local-name()='script']") == []


def test_one_value_is_no_line():
    assert sparkline([5], label="URLs") == line([5], [0]) == ""


def test_a_sparkline_fills_its_height_and_says_its_range():
    image = etree.fromstring(str(sparkline([1671, 1683, 1654], label="URLs")))
    heights = [float(point.split(",")[1]) for point in find(image, "string(//@points)").split()]
    assert (min(heights), max(heights)) == (heights[1], heights[2]) == (2, 22)
    assert image.get("aria-label") == "URLs: 1\u2009654 to 1\u2009683"


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**9))
def test_an_axis_has_a_few_round_values_around_what_is_drawn(low: int, span: int):
    ticks = Scale.around(low, low + span).ticks
    assert ticks[0] <= low <= low + span <= ticks[-1]
    assert 2 <= len(ticks) <= 7


def test_additions_stand_above_the_line_and_removals_below_it():
    figure = etree.fromstring(str(change_bars([PeriodBar("1 Mar", 4, 2)], label="Changes")))
    (axis,) = find(figure, ".//line[@class='axis']/@y1")
    _, added, removed = figure.iter("rect")
    assert place(added, "y") + place(added, "height") == pytest.approx(float(axis), abs=0.1)
    assert place(removed, "y") == pytest.approx(float(axis), abs=0.1)
    assert place(added, "height") == pytest.approx(2 * place(removed, "height"), abs=0.2)
    scale = [text.text for text in find(figure, ".//svg[@class='scale']/text")]
    assert scale == ["URLs", "−2", "0", "+2", "+4"]


def test_a_period_without_a_scan_is_a_gap_and_one_without_changes_is_not():
    bars = [PeriodBar("1 Mar", 0, 0, scans=0), PeriodBar("2 Mar", 0, 0, scans=1)]
    figure = etree.fromstring(str(change_bars(bars, label="Changes")))
    assert words(figure, "tip") == ["1 Mar: no scan", "2 Mar: 0 added, 0 removed"]
    assert len(find(figure, ".//rect[@class='gap']")) == 1
    assert find(figure, ".//*[@class='gap-note']")
    assert not find(etree.fromstring(str(LARGE[0])), "//*[@class='gap-note']")


def test_a_bar_beside_which_the_others_would_be_invisible_is_cut():
    bars = [PeriodBar(f"{day} Mar", 36 + day, 0) for day in range(1, 7)]
    figure = etree.fromstring(str(change_bars([*bars, PeriodBar("7 Mar", 900, 5)], label="C")))
    assert len(find(figure, ".//rect[@class='cut']")) == 1
    assert find(figure, "contains(., 'A bar with a break is longer than shown.')")
    heights = [place(bar, "height") for bar in find(figure, ".//rect[@class='added']")]
    assert min(heights) > max(heights) / 2
    assert words(figure, "tip")[-1] == "7 Mar: 900 added, 5 removed"
    assert words(figure, "length") == ["900"]
    (number,), (cut,) = (find(figure, f".//*[@class='{name}']") for name in ("length", "cut"))
    assert number.get("text-anchor") == "end"
    assert place(number, "x") <= place(cut, "x")


def test_the_numbers_of_neighbouring_bars_with_a_break_do_not_cover_each_other():
    usual = [PeriodBar(f"{day} Mar", 30, 2) for day in range(1, 11)]
    long = [PeriodBar(f"{day} Mar", 900 + day, 4_000) for day in (11, 12)]
    figure = etree.fromstring(str(change_bars([*usual, *long], label="C")))
    numbers = find(figure, ".//*[@class='length']")
    assert words(figure, "length") == ["911", "4\u2009000", "912", "4\u2009000"]
    assert len({place(number, "y") for number in numbers}) == len(numbers)


def test_bars_that_differ_less_are_drawn_in_full():
    bars = [PeriodBar(f"{day} Mar", 30 * day, 10) for day in range(1, 10)]
    figure = etree.fromstring(str(change_bars(bars, label="Changes")))
    assert find(figure, ".//rect[@class='cut']") == find(figure, ".//p[@class='plot-note']") == []


def test_a_line_far_from_zero_has_a_marked_break():
    figure = etree.fromstring(str(line([1654, 1683, 1671], [0, 1, 2])))
    assert find(figure, ".//path[@class='break']")
    assert find(figure, "contains(., 'The axis starts at 1\u2009650.')")
    near = etree.fromstring(str(line([100, 1683, 1671], [0, 1, 2])))
    assert not find(near, ".//path[@class='break']")


def test_a_line_is_broken_where_there_was_no_scan_for_long():
    figure = etree.fromstring(str(line([10, 12, 11, 14, 13], [0, 1, 2, 20, 21])))
    points = [text.split() for text in find(figure, ".//polyline/@points")]
    assert [len(run) for run in points] == [3, 2]


@pytest.mark.parametrize(
    ("days", "names"),
    [
        ([0, 10 / 24], ["09:00", "12:00", "15:00", "18:00"]),
        ([0, 60], ["9 Mar", "23 Mar", "6 Apr", "20 Apr"]),
        ([0, 0.0001], ["08:00:00", "08:00:08"]),
    ],
)
def test_the_axis_of_time_has_round_times(days: list[float], names: list[str]):
    assert words(etree.fromstring(str(line([10, 12], days))), "tick") == names


def test_dates_in_the_future_and_before_the_web_do_not_stretch_the_axis():
    figure = months({"1970-01": 3, "2026-09": 40, "2026-11": 20, "2026-12": 1, "2031-01": 2})
    assert rows(figure) == [
        ["before 1995", "3"],
        ["2026-09", "40"],
        ["2026-10", "0"],
        ["2026-11", "20"],
        ["in the future", "3"],
    ]
    apart = [place(mark[0], "x") for mark in find(figure, ".//g[@class='mark']")]
    assert apart[1] - apart[0] == pytest.approx(2 * (apart[2] - apart[1]), abs=0.1)
    assert {"before 1995", "in the future"} <= set(words(figure, "tick"))


def test_months_before_the_last_three_years_are_one_bar():
    figure = months({"2001-05": 7, "2019-01": 5, "2026-11": 20})
    first, second, *_, last = shown = rows(figure)
    assert first == ["earlier", "12"]
    assert (len(shown), second, last) == (37, ["2023-12", "0"], ["2026-11", "20"])


def test_dates_that_are_all_in_the_future_are_one_bar():
    assert rows(months({"2030-01": 7, "2031-01": 5})) == [["in the future", "12"]]


def test_every_scan_of_the_strip_has_a_tooltip():
    marks = [ScanMark("ok", seconds, f"scan {seconds}") for seconds in (1.0, 2.0, 4.0)]
    image = etree.fromstring(str(scan_strip(marks, label="Scans")))
    assert [title.text for title in image.iter("title")] == ["scan 1.0", "scan 2.0", "scan 4.0"]
    heights = [place(bar, "height") for bar in image.iter("rect")]
    assert heights == sorted(heights)


def test_the_small_strip_has_the_bars_of_the_large_one():
    marks = [ScanMark(("ok", "fail")[n % 2], float(n + 1), "") for n in range(20)]
    image = etree.fromstring(str(small_scan_strip(marks, label="Scans")))
    paths = {path.get("class"): path.get("d", "").count("M") for path in image.iter("path")}
    assert paths == {"ok": 10, "fail": 10}
