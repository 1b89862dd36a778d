"""Charts as SVG: sparklines, bars per day, histograms, the strip of the last scans.

Drawn here rather than in the browser: they can be tested, printed, and need no script. Colours come
from the style sheet by class, because the content security policy forbids inline styles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

SPARK_WIDTH, SPARK_HEIGHT = 96, 24
STRIP_BAR, STRIP_GAP, STRIP_HEIGHT = 5, 2, 24
BARS_WIDTH, BARS_HEIGHT, BARS_MARGIN = 640, 160, 18
HISTOGRAM_HEIGHT = 140
MIN_BAR = 1.5


@dataclass(frozen=True, slots=True)
class ScanMark:
    """One scan in the strip: how it ended (a class of the style sheet), its length, its tooltip."""

    result: str
    seconds: float
    title: str


@dataclass(frozen=True, slots=True)
class DayChange:
    """What was added and removed on one day."""

    day: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class NamedValue:
    """One bar of a histogram."""

    name: str
    value: int


def sparkline(values: Sequence[int], *, label: str) -> Markup:
    """A line of a few values, from left to right; the scale starts at zero."""
    if len(values) < 2:  # noqa: PLR2004 - one point is no line
        return Markup("")
    top = max(*values, 1)
    step = (SPARK_WIDTH - 4) / (len(values) - 1)
    points = [
        (2 + place * step, SPARK_HEIGHT - 2 - value / top * (SPARK_HEIGHT - 4))
        for place, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{SPARK_HEIGHT} {line} {points[-1][0]:.1f},{SPARK_HEIGHT}"
    body = Markup('<polygon class="area" points="{}"/><polyline class="line" points="{}"/>')
    return _svg(
        "chart spark", SPARK_WIDTH, SPARK_HEIGHT, label, body.format(area, line), fixed=True
    )


def scan_strip(marks: Sequence[ScanMark], *, label: str) -> Markup:
    """One bar for each of the last scans; its height is the duration, its colour the result."""
    longest = max([mark.seconds for mark in marks], default=0) or 1
    bars = Markup("").join(
        _rect(
            mark.result,
            place * (STRIP_BAR + STRIP_GAP),
            max(5.0, mark.seconds / longest * STRIP_HEIGHT),
            base=STRIP_HEIGHT,
            width=STRIP_BAR,
            title=mark.title,
        )
        for place, mark in enumerate(marks)
    )
    width = max(1, len(marks)) * (STRIP_BAR + STRIP_GAP)
    return _svg("chart spark", width, STRIP_HEIGHT, label, bars, fixed=True)


def change_bars(days: Sequence[DayChange], *, label: str) -> Markup:
    """Bars per day: what was added above the line, what was removed below it."""
    if not days:
        return Markup("")
    top = max(1, *(day.added for day in days), *(day.removed for day in days))
    middle = BARS_HEIGHT / 2
    room = middle - BARS_MARGIN
    step = BARS_WIDTH / len(days)
    width = max(2.0, step * 0.7)
    parts = [
        Markup('<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
            BARS_WIDTH, middle, middle
        )
    ]
    for place, day in enumerate(days):
        x = place * step + (step - width) / 2
        title = f"{day.day}: {day.added:,} added, {day.removed:,} removed"
        if day.added:
            height = max(MIN_BAR, day.added / top * room)
            parts.append(_rect("added", x, height, base=middle, width=width, title=title))
        if day.removed:
            height = max(MIN_BAR, day.removed / top * room)
            parts.append(
                _rect("removed", x, height, base=middle + height, width=width, title=title)
            )
    parts += [
        _text(0, BARS_HEIGHT, days[0].day),
        _text(BARS_WIDTH, BARS_HEIGHT, days[-1].day, "end"),
    ]
    parts.append(_text(0, 10, f"+{top:,}"))
    return _svg("chart", BARS_WIDTH, BARS_HEIGHT, label, Markup("").join(parts))


def histogram(values: Sequence[NamedValue], *, label: str) -> Markup:
    """One bar for each value, the first and the last with their names."""
    if not values:
        return Markup("")
    top = max(1, *(each.value for each in values))
    step = BARS_WIDTH / len(values)
    width = max(1.0, step * 0.8)
    room = HISTOGRAM_HEIGHT - 2 * BARS_MARGIN
    base = HISTOGRAM_HEIGHT - BARS_MARGIN
    bars = [
        _rect(
            "bar",
            place * step + (step - width) / 2,
            max(MIN_BAR, each.value / top * room),
            base=base,
            width=width,
            title=f"{each.name}: {each.value:,}",
        )
        for place, each in enumerate(values)
        if each.value
    ]
    axis = Markup('<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
        BARS_WIDTH, base, base
    )
    names = [
        _text(0, HISTOGRAM_HEIGHT, values[0].name),
        _text(BARS_WIDTH, HISTOGRAM_HEIGHT, values[-1].name, "end"),
        _text(0, 10, f"{top:,}"),
    ]
    return _svg(
        "chart", BARS_WIDTH, HISTOGRAM_HEIGHT, label, Markup("").join([axis, *bars, *names])
    )


def share_bar(share: float, *, label: str) -> Markup:
    """A short bar for a share between 0 and 1."""
    width = 72
    filled = max(0.0, min(1.0, share)) * width
    body = Markup(
        '<rect class="none" opacity="0.25" x="0" y="3" width="{}" height="6" rx="3"/>'
        '<rect class="bar" x="0" y="3" width="{:.1f}" height="6" rx="3"/>'
    ).format(width, filled)
    return _svg("chart spark", width, 12, label, body, fixed=True)


def _rect(kind: str, x: float, height: float, *, base: float, width: float, title: str) -> Markup:
    """A bar that stands on `base`."""
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1">'
        "<title>{}</title></rect>"
    ).format(kind, x, base - height, width, height, title)


def _text(x: float, y: float, text: str, anchor: str = "start") -> Markup:
    return Markup('<text x="{:.0f}" y="{:.0f}" text-anchor="{}">{}</text>').format(
        x, y - 3, anchor, text
    )


def _svg(
    kind: str, width: float, height: float, label: str, body: Markup, *, fixed: bool = False
) -> Markup:
    """An SVG image with a text for those who cannot see it."""
    given = Markup(' width="{:.0f}" height="{:.0f}"').format(width, height) if fixed else Markup("")
    return Markup(
        '<svg class="{}" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}"{}>{}</svg>'
    ).format(kind, width, height, escape(label), given, body)
