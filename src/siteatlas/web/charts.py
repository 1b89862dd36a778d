"""Charts as SVG: sparklines, bars per day, histograms, the strip of the last scans.

Drawn here rather than in the browser: they can be tested, printed, and need no script. Colours come
from the style sheet by class, because the content security policy forbids inline styles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

from markupsafe import Markup, escape

from siteatlas.catalog.newest_changes import Period, PeriodChanges

SPARK_WIDTH, SPARK_HEIGHT = 96, 24
STRIP_BAR, STRIP_STEP, STRIP_HEIGHT = 5, 7, 24
BARS_WIDTH, BARS_HEIGHT = 640, 160
HISTOGRAM_HEIGHT = 140
MIN_BAR = 1.5


@dataclass(frozen=True, slots=True)
class ScanMark:
    """One scan in the strip: how it ended (a class of the style sheet), its length, its tooltip."""

    result: str
    seconds: float
    title: str


@dataclass(frozen=True, slots=True)
class PeriodBar:
    """What was added and removed in one hour or day."""

    name: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class NamedValue:
    """One bar of a histogram."""

    name: str
    value: int


def sparkline(values: Sequence[int], *, label: str) -> Markup:
    """A line of a few values, from left to right; the scale starts at zero."""
    if len(values) < 2:  # one point is no line
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
    bars = Markup("").join(
        _rect(
            mark.result,
            place * STRIP_STEP,
            height,
            base=STRIP_HEIGHT,
            width=STRIP_BAR,
            title=mark.title,
        )
        for place, (mark, height) in enumerate(_strip_heights(marks))
    )
    return _strip(bars, len(marks), label)


def small_scan_strip(marks: Sequence[ScanMark], *, label: str) -> Markup:
    """The same for long lists: one path for each colour, without tooltips, a tenth of the size."""
    paths: dict[str, list[str]] = {}
    for place, (mark, height) in enumerate(_strip_heights(marks)):
        bar = f"M{place * STRIP_STEP} {STRIP_HEIGHT}v-{height:.0f}h{STRIP_BAR}v{height:.0f}z"
        paths.setdefault(mark.result, []).append(bar)
    drawn = Markup("").join(
        Markup('<path class="{}" d="{}"/>').format(result, "".join(bars))
        for result, bars in paths.items()
    )
    return _strip(drawn, len(marks), label)


def _strip_heights(marks: Sequence[ScanMark]) -> list[tuple[ScanMark, float]]:
    longest = max([mark.seconds for mark in marks], default=0) or 1
    return [(mark, max(5.0, mark.seconds / longest * STRIP_HEIGHT)) for mark in marks]


def _strip(bars: Markup, count: int, label: str) -> Markup:
    return _svg("chart spark", max(1, count) * STRIP_STEP, STRIP_HEIGHT, label, bars, fixed=True)


def change_bars(bars: Sequence[PeriodBar], *, label: str) -> Markup:
    """Bars over time: what was added above the line, what was removed below it."""
    if not bars:
        return Markup("")
    top = max(1, *(bar.added for bar in bars), *(bar.removed for bar in bars))
    middle = BARS_HEIGHT / 2
    step = BARS_WIDTH / len(bars)
    width = max(2.0, step * 0.7)
    parts = [_axis(middle)]
    for place, bar in enumerate(bars):
        x = place * step + (step - width) / 2
        title = f"{bar.name}: {bar.added:,} added, {bar.removed:,} removed"
        if bar.added:
            height = max(MIN_BAR, bar.added / top * middle)
            parts.append(_rect("added", x, height, base=middle, width=width, title=title))
        if bar.removed:
            height = max(MIN_BAR, bar.removed / top * middle)
            parts.append(
                _rect("removed", x, height, base=middle + height, width=width, title=title)
            )
    image = _svg("chart wide", BARS_WIDTH, BARS_HEIGHT, label, Markup("").join(parts))
    return _labelled(image, bars[0].name, f"scale: {top:,} URLs", bars[-1].name)


def histogram(values: Sequence[NamedValue], *, label: str) -> Markup:
    """One bar for each value, the first and the last with their names."""
    if not values:
        return Markup("")
    top = max(1, *(each.value for each in values))
    step = BARS_WIDTH / len(values)
    width = max(1.0, step * 0.8)
    bars = [
        _rect(
            "bar",
            place * step + (step - width) / 2,
            max(MIN_BAR, each.value / top * HISTOGRAM_HEIGHT),
            base=HISTOGRAM_HEIGHT,
            width=width,
            title=f"{each.name}: {each.value:,}",
        )
        for place, each in enumerate(values)
        if each.value
    ]
    body = Markup("").join([*bars, _axis(HISTOGRAM_HEIGHT)])
    image = _svg("chart wide", BARS_WIDTH, HISTOGRAM_HEIGHT, label, body)
    return _labelled(image, values[0].name, f"highest: {top:,}", values[-1].name)


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
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1">'
        "<title>{}</title></rect>"
    ).format(kind, x, base - height, width, height, title)


def _axis(y: float) -> Markup:
    return Markup('<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>').format(BARS_WIDTH, y, y)


def _labelled(image: Markup, first: str, middle: str, last: str) -> Markup:
    return Markup(
        '<div class="plot">{}<div class="plot-words"><span>{}</span><span>{}</span><span>{}</span>'
        "</div></div>"
    ).format(image, first, middle, last)


def _svg(
    kind: str, width: float, height: float, label: str, body: Markup, *, fixed: bool = False
) -> Markup:
    """An SVG image with a text for those who cannot see it; one that is not fixed is stretched."""
    given = Markup(' preserveAspectRatio="none"')
    if fixed:
        given = Markup(' width="{:.0f}" height="{:.0f}"').format(width, height)
    return Markup(
        '<svg class="{}" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}"{}>{}</svg>'
    ).format(kind, width, height, escape(label), given, body)


def change_bars_of(changes: Sequence[PeriodChanges], period: Period) -> list[PeriodBar]:
    """Changes over time as the bars of a chart."""
    form = "%H:%M" if period is Period.HOUR else "%-d %b"
    return [
        PeriodBar(f"{one.start.astimezone(UTC):{form}}", one.added, one.removed) for one in changes
    ]
