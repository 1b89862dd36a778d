"""Charts as SVG: values over time, bars per period, histograms, sparklines, strips of scans.

Drawn here rather than in the browser: they can be tested, printed, and need no script. A large
chart has axes, a table, and a label on each mark that has the pointer or the focus. Colours come
from the style sheet by class, because the content security policy forbids inline styles. Places
from left to right are percentages, so that a chart fits any width without stretching its letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from math import floor, log10
from statistics import median

from markupsafe import Markup

from siteatlas.catalog.newest_changes import Period, PeriodChanges

SPARK_WIDTH, SPARK_HEIGHT = 96, 24
STRIP_BAR, STRIP_STEP, STRIP_HEIGHT = 5, 7, 24
# Of a large chart: the labels of its marks are above it, those of the axis below.
HEIGHT, TOP, BOTTOM = 210, 28, 186
SCALE_WIDTH = 64
MIN_BAR = 1.5
MOST_NAMES = 6
MONTHS = 36
# Bars that are this many times as long as usual ones are cut, where there are enough to say so.
MOST_OVER_MEDIAN, LEAST_FOR_BREAK = 10, 5
# The first web servers; an earlier date is a mistake.
FIRST_YEAR = 1995
DAY_SECONDS = 86_400
TIME_STEPS = (
    *(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 180, 360, 720)),
    *(timedelta(days=days) for days in (1, 2, 7, 14, 28)),
)


@dataclass(frozen=True, slots=True)
class ScanMark:
    """One scan in the strip: how it ended (a class of the style sheet), its length, its tooltip."""

    result: str
    seconds: float
    title: str


@dataclass(frozen=True, slots=True)
class PeriodBar:
    """What was added and removed in one hour or day, and in how many scans."""

    name: str
    added: int
    removed: int
    scans: int = 1


@dataclass(frozen=True, slots=True)
class Scale:
    """The vertical axis: round values, the lowest first."""

    ticks: Sequence[int]

    @classmethod
    def around(cls, low: int, high: int) -> Scale:
        """Up to six round values around these two."""
        rough = max(high - low, 1) / 4
        power = 10 ** floor(log10(rough))
        step = max(1, round(next(n * power for n in (1, 2, 5, 10) if n * power >= rough)))
        first = low // step * step
        return cls(range(first, max(high, first + 1) + step, step))

    def y(self, value: float) -> float:
        """Where a value is drawn."""
        low, high = self.ticks[0], self.ticks[-1]
        return TOP + (high - value) / (high - low) * (BOTTOM - TOP)


def sparkline(values: Sequence[int], *, label: str) -> Markup:
    """A line of a few values, from left to right, between the lowest and the highest."""
    if len(values) < 2:  # one point is no line
        return Markup("")
    low, high = min(values), max(values)
    step = (SPARK_WIDTH - 4) / (len(values) - 1)
    points = (
        (2 + place * step, 2 + (high - value) / (high - low) * (SPARK_HEIGHT - 4))
        if high > low
        else (2 + place * step, SPARK_HEIGHT / 2)
        for place, value in enumerate(values)
    )
    line = Markup('<polyline class="line" points="{}"/>').format(_points(points))
    label = f"{label}: {_number(low)}" + (f" to {_number(high)}" if high > low else "")
    body = Markup("<title>{}</title>{}").format(label, line)
    return _svg("chart spark", SPARK_WIDTH, SPARK_HEIGHT, label, body)


def scan_strip(marks: Sequence[ScanMark], *, label: str) -> Markup:
    """One bar for each of the last scans; its height is the duration, its colour the result."""
    bars = Markup("").join(
        Markup(
            '<rect class="{}" x="{}" y="{:.1f}" width="{}" height="{:.1f}" rx="1">'
            "<title>{}</title></rect>"
        ).format(
            mark.result, place * STRIP_STEP, STRIP_HEIGHT - height, STRIP_BAR, height, mark.title
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
    return _svg("chart spark", max(1, count) * STRIP_STEP, STRIP_HEIGHT, label, bars)


def share_bar(share: float, *, label: str) -> Markup:
    """A short bar for a share between 0 and 1."""
    width = 72
    filled = max(0.0, min(1.0, share)) * width
    body = Markup(
        '<rect class="none" opacity="0.25" x="0" y="3" width="{}" height="6" rx="3"/>'
        '<rect class="bar" x="0" y="3" width="{:.1f}" height="6" rx="3"/>'
    ).format(width, filled)
    return _svg("chart spark", width, 12, label, body)


_NO_SCAN = Markup('<span class="gap-note">no scan</span>')


@dataclass(frozen=True, slots=True)
class _Column:
    """A period or a month in a chart: its words, and its bars by class; no bars are a gap."""

    name: str
    words: str
    cells: Sequence[str]
    bars: Mapping[str, int]


def change_bars(bars: Sequence[PeriodBar], *, label: str) -> Markup:
    """Bars over time: what was added above the line, what was removed below it."""
    if not bars:
        return Markup("")
    columns = [
        _Column(
            bar.name,
            f"{bar.name}: {_number(bar.added)} added, {_number(bar.removed)} removed",
            (_number(bar.added), _number(bar.removed), _number(bar.scans)),
            {"added": bar.added, "removed": -bar.removed},
        )
        if bar.scans
        else _Column(bar.name, f"{bar.name}: no scan", ("–", "–", "0"), {})
        for bar in bars
    ]
    heads = ("Period (UTC)", "Added", "Removed", "Scans")
    return _columns(columns, heads, label=label, is_signed=True)


def months_histogram(counts: Mapping[str, int], today: date, *, label: str) -> Markup:
    """URLs by month, up to this one; what lies before or after has a bar apart."""
    this = 12 * today.year + today.month - 1
    known = {12 * int(month[:4]) + int(month[5:]) - 1: urls for month, urls in counts.items()}
    usual = [month for month in known if 12 * FIRST_YEAR <= month <= this]
    first = max(min(usual, default=this), max(usual, default=this) - MONTHS + 1)
    values: list[tuple[str, int] | None] = [
        (f"{month // 12}-{month % 12 + 1:02d}", known.get(month, 0))
        for month in range(first, max(usual, default=first - 1) + 1)
    ]
    earlier = sum(known[month] for month in usual if month < first)
    ancient = sum(urls for month, urls in known.items() if month < 12 * FIRST_YEAR)
    future = sum(urls for month, urls in known.items() if month > this)
    if earlier:
        values[:0] = [("earlier", earlier), None]
    if ancient:
        values[:0] = [(f"before {FIRST_YEAR}", ancient), None]
    if future:
        values += [None, ("in the future", future)]
    columns = [
        one and _Column(one[0], f"{one[0]}: {_number(one[1])}", (_number(one[1]),), {"bar": one[1]})
        for one in values
    ]
    return _columns(columns, ("Month", "URLs"), label=label)


def _columns(
    columns: Sequence[_Column | None], heads: Sequence[str], *, label: str, is_signed: bool = False
) -> Markup:
    drawn = [column for column in columns if column]
    if not drawn:
        return Markup("")
    values = [value for column in drawn for value in column.bars.values() if value]
    limit = _limit(drawn)
    usual = [value for value in values if abs(value) <= limit]
    scale = Scale.around(min(0, *usual, 0), max(0, *usual, 0))
    step, every = 100 / len(columns), -(-len(columns) // MOST_NAMES)
    parts, names, numbers, cut = [], [], list[Markup](), list[tuple[float, bool]]()
    for place, column in enumerate(columns):
        x = place * step
        if column is None:
            continue
        bars = [
            _bar(kind, value, scale, x + step * 0.15, step * 0.7)
            for kind, value in column.bars.items()
            if value
        ]
        if not column.bars:
            bars = [_rect("gap", x, TOP, step, BOTTOM - TOP)]
        parts.append(
            _mark(column.words, x, step, Markup("").join(bars), is_last=column is drawn[-1])
        )
        for value in column.bars.values():
            if not scale.ticks[0] <= value <= scale.ticks[-1]:
                near = [is_up for at, is_up in cut if at > x - 15].count(value > 0)
                numbers.append(_number_of_cut(value, x, step, near))
                cut.append((x, value > 0))
        is_apart = None in columns[max(place - 1, 0) : place + 2]
        if is_apart or (len(columns) - 1 - place) % every == 0:
            names.append((x + step / 2, column.name))
    notes = [
        *([] if all(column.bars for column in drawn) else [_NO_SCAN]),
        *(
            []
            if usual == values
            else [Markup("<span>A bar with a break is longer than shown.</span>")]
        ),
    ]
    rows = ((column.name, *column.cells) for column in drawn)
    return _figure(
        label,
        scale,
        parts + numbers,
        names,
        Markup(" ").join(notes),
        _table(label, heads, rows),
        is_signed=is_signed,
    )


def _limit(columns: Sequence[_Column]) -> float:
    """What the axis is for: without the few bars beside which all others would be invisible."""
    longest = [max(map(abs, column.bars.values()), default=0) for column in columns]
    known = [value for value in longest if value]
    return MOST_OVER_MEDIAN * median(known) if len(known) >= LEAST_FOR_BREAK else max(longest)


def _bar(kind: str, value: int, scale: Scale, x: float, width: float) -> Markup:
    end = min(max(value, scale.ticks[0]), scale.ticks[-1])
    zero, y = scale.y(0), scale.y(end)
    bar = _rect(kind, x, min(zero, y), width, max(MIN_BAR, abs(zero - y)))
    if end == value:
        return bar
    return bar + _rect("cut", x, y + (8 if value > 0 else -11), width, 3)


def _number_of_cut(value: int, x: float, step: float, near: int) -> Markup:
    """The number of a bar with a break, beside it, and below those that are near."""
    is_left, lower = x > 50, 14 * (near % 6)
    return Markup(
        '<text class="length" aria-hidden="true" x="{:.2f}%" y="{}" text-anchor="{}">{}</text>'
    ).format(
        x + step * (0.1 if is_left else 0.9),
        TOP + 12 + lower if value > 0 else BOTTOM - 4 - lower,
        "end" if is_left else "start",
        _number(abs(value)),
    )


def line_over_time(points: Sequence[tuple[datetime, int]], *, label: str, head: str) -> Markup:
    """A value at several times; the line is broken where there was none for long.

    The axis starts at zero unless the differences would be hard to see then.
    """
    if len(points) < 2:  # one point is no line
        return Markup("")
    low, high = min(value for _, value in points), max(value for _, value in points)
    scale = Scale.around(0 if low == high or low < 2 * (high - low) else low, high)
    start, length = points[0][0], points[-1][0] - points[0][0] or TIME_STEPS[0]
    places = [1 + 98 * ((at - start) / length) for at, _ in points]
    steps = [later - earlier for (earlier, _), (later, _) in pairwise(points)]
    longest = max(3 * median(step.total_seconds() for step in steps), DAY_SECONDS)
    runs: list[list[tuple[float, float]]] = [[]]
    marks = []
    for number, ((at, value), x) in enumerate(zip(points, places, strict=True)):
        if number and steps[number - 1].total_seconds() > longest:
            runs.append([])
        runs[-1].append((x, scale.y(value)))
        left = (places[max(number - 1, 0)] + x) / 2
        right = (x + places[min(number + 1, len(points) - 1)]) / 2
        dot = Markup('<circle class="dot" cx="{:.2f}%" cy="{:.1f}" r="2.5"/>')
        words = f"{at.astimezone(UTC):%-d %b %Y %H:%M} UTC: {_number(value)}"
        parts = dot.format(x, scale.y(value))
        marks.append(_mark(words, left, right - left, parts, is_last=number == len(points) - 1))
    lines = Markup(
        '<svg viewBox="0 0 100 {0}" width="100%" height="{0}" preserveAspectRatio="none">{1}</svg>'
    ).format(HEIGHT, Markup("").join(map(_run, runs)))
    rows = ((f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}", _number(value)) for at, value in points)
    note = f"The axis starts at {_number(scale.ticks[0])}." if scale.ticks[0] else ""
    names = [(1 + 98 * ((at - start) / length), name) for at, name in _times(start, start + length)]
    table = _table(label, ("Time (UTC)", head), rows)
    return _figure(label, scale, [lines, *marks], names, note, table)


def _run(points: Sequence[tuple[float, float]]) -> Markup:
    line = _points(points)
    return Markup(
        '<polygon class="area" points="{0},{3} {2} {1},{3}"/>'
        '<polyline class="line" points="{2}" vector-effect="non-scaling-stroke"/>'
    ).format(f"{points[0][0]:.2f}", f"{points[-1][0]:.2f}", line, BOTTOM)


def _times(start: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """Round times between these two, with their names."""
    step = next((s for s in TIME_STEPS if (end - start) / s <= MOST_NAMES), (end - start) / 4)
    form = "%H:%M" if step < timedelta(days=1) else "%-d %b"
    zero = datetime(2024, 1, 1, tzinfo=UTC)  # a Monday
    first = zero - (zero - start) // step * step
    times = (first + number * step for number in range(MOST_NAMES + 2))
    found = [(at, f"{at:{form}}") for at in times if start <= at <= end]
    if len(found) > 1:
        return found
    return [(at, f"{at.astimezone(UTC):%H:%M:%S}") for at in (start, end)]


def _mark(words: str, x: float, width: float, body: Markup, *, is_last: bool) -> Markup:
    """What has a value: its label is shown while it has the pointer or the focus.

    The last one is a stop of the tab key; from there, the arrow keys lead to the others.
    """
    middle = x + width / 2
    anchor = "start" if middle < 30 else "end" if middle > 70 else "middle"
    return Markup(
        '<g class="mark" role="img" tabindex="{}" aria-label="{}">{}{}'
        '<text class="tip" x="{:.2f}%" y="14" text-anchor="{}">{}</text></g>'
    ).format(
        0 if is_last else -1,
        words,
        _rect("hit", x, TOP, width, BOTTOM - TOP),
        body,
        middle,
        anchor,
        words,
    )


def _figure(
    label: str,
    scale: Scale,
    parts: Iterable[Markup],
    names: Iterable[tuple[float, str]],
    note: str,
    table: Markup,
    *,
    is_signed: bool = False,
) -> Markup:
    """A large chart: its vertical axis, its marks above the names below them, and its table."""
    ticks = Markup("").join(
        Markup('<text x="{}" y="{:.1f}" text-anchor="end">{}{}</text>').format(
            SCALE_WIDTH - 8, scale.y(tick) + 4, "+" if is_signed and tick > 0 else "", _number(tick)
        )
        for tick in scale.ticks
    )
    if scale.ticks[0] > 0:
        ticks += Markup('<path class="break" d="M{0} {1}l8 -5m-8 10l8 -5"/>').format(
            SCALE_WIDTH - 8, BOTTOM - 12
        )
    lines = Markup("").join(
        Markup('<line class="{}" x1="0" x2="100%" y1="{:.1f}" y2="{:.1f}"/>').format(
            "grid" if tick else "axis", scale.y(tick), scale.y(tick)
        )
        for tick in scale.ticks
    )
    below = Markup("").join(
        Markup('<text class="tick" x="{:.2f}%" y="{}" text-anchor="{}">{}</text>').format(
            x if x < 94 else 100, HEIGHT - 6, "middle" if x < 94 else "end", name
        )
        for x, name in names
    )
    return Markup(
        '<figure class="plot"><div class="plot-area">'
        '<svg class="scale" width="{width}" height="{height}" aria-hidden="true">'
        '<text x="{right}" y="14" text-anchor="end">URLs</text>{ticks}</svg>'
        '<svg class="chart wide" height="{height}" role="group" aria-label="{label}">'
        "{lines}{parts}{below}</svg></div>{note}{table}</figure>"
    ).format(
        width=SCALE_WIDTH,
        right=SCALE_WIDTH - 8,
        height=HEIGHT,
        ticks=ticks,
        label=label,
        lines=lines,
        parts=Markup("").join(parts),
        below=below,
        note=Markup('<p class="plot-note">{}</p>').format(note) if note else "",
        table=table,
    )


def _table(label: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """What a chart shows, for those who prefer to read it; works without JavaScript."""
    first, *others = heads
    head = Markup("").join(
        Markup('<th scope="col" class="number">{}</th>').format(name) for name in others
    )
    body = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            name, Markup("").join(Markup('<td class="number">{}</td>').format(c) for c in cells)
        )
        for name, *cells in rows
    )
    return Markup(
        '<details><summary>Show as a table</summary><div class="scroll" tabindex="0"><table>'
        '<caption class="visually-hidden">{}</caption><thead><tr><th scope="col">{}</th>{}</tr>'
        "</thead><tbody>{}</tbody></table></div></details>"
    ).format(label, first, head, body)


def _rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    return Markup(
        '<rect class="{}" x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}"/>'
    ).format(kind, x, y, width, height)


def _number(value: int) -> str:
    return f"{value:,}".replace(",", "\u2009").replace("-", "−")


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.2f},{y:.1f}" for x, y in points)


def _svg(kind: str, width: float, height: float, label: str, body: Markup) -> Markup:
    """A small SVG image with a text for those who cannot see it."""
    return Markup(
        '<svg class="{}" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}"'
        ' width="{:.0f}" height="{:.0f}">{}</svg>'
    ).format(kind, width, height, label, width, height, body)


def change_bars_of(changes: Sequence[PeriodChanges], period: Period) -> list[PeriodBar]:
    """Changes over time as the bars of a chart."""
    form = "%H:%M" if period is Period.HOUR else "%-d %b"
    return [
        PeriodBar(f"{one.start.astimezone(UTC):{form}}", one.added, one.removed, one.scans)
        for one in changes
    ]
