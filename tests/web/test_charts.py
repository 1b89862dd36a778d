"""Charts are accessible images: valid SVG, without inline styles, with a text alternative."""

from __future__ import annotations

import pytest
from lxml import etree
from markupsafe import Markup

from siteatlas.web.charts import (
    NamedValue,
    PeriodBar,
    ScanMark,
    change_bars,
    histogram,
    scan_strip,
    share_bar,
    small_scan_strip,
    sparkline,
)

DRAWN = [
    sparkline([1, 5, 3], label="URLs"),
    scan_strip([ScanMark("ok", 1.0, "first"), ScanMark("fail", 2.0, "second")], label="Scans"),
    change_bars([PeriodBar("1 Mar", 5, 0), PeriodBar("2 Mar", 0, 2)], label="Changes"),
    histogram([NamedValue("2025-01", 4), NamedValue("2025-02", 0)], label="Months"),
    small_scan_strip([ScanMark("ok", 1.0, ""), ScanMark("fail", 2.0, "")], label="Scans"),
    share_bar(0.5, label="Share"),
]


def place(element: etree._Element, name: str) -> float:
    """A coordinate or a length of a drawn element."""
    return float(element.get(name, "nan"))


@pytest.mark.parametrize("drawn", DRAWN)
def test_a_chart_is_well_formed_has_a_label_and_no_inline_style(drawn: Markup):
    image = next(etree.fromstring(str(drawn)).iter("svg"))
    assert image.get("role") == "img"
    assert image.get("aria-label")
    assert image.xpath("//@style") == []


def test_a_label_cannot_break_out_of_a_chart():
    drawn = sparkline([1, 2], label='"><script>alert(1)</script>')
    assert etree.fromstring(str(drawn)).xpath("//*[local-name()='script']") == []


def test_one_value_is_no_line():
    assert sparkline([5], label="URLs") == ""


def test_additions_stand_above_the_line_and_removals_below_it():
    image = etree.fromstring(str(change_bars([PeriodBar("1 Mar", 4, 2)], label="Changes")))
    axis = place(next(image.iter("line")), "y1")
    added, removed = image.iter("rect")
    assert place(added, "y") + place(added, "height") == pytest.approx(axis, abs=0.1)
    assert place(removed, "y") == pytest.approx(axis, abs=0.1)
    assert place(added, "height") == pytest.approx(2 * place(removed, "height"), abs=0.2)


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
