"""One measured figure, and the table of all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

BASE = "usp"
HEADINGS = ("what", "URLs", "seconds", "spread", "URLs/s", "against usp", "peak MB", "note")


@dataclass(frozen=True, slots=True)
class Figure:
    """How fast a program read the site; `problem` says why there is no figure.

    Over several rounds, `seconds` is the median of `rounds` and `peak_mb` the highest peak.
    """

    name: str
    urls: int = 0
    seconds: float = 0.0
    peak_mb: float = 0.0
    note: str = ""
    problem: str = ""
    rounds: tuple[float, ...] = ()

    @property
    def urls_per_second(self) -> float:
        return self.urls / self.seconds if self.seconds else 0.0


def over_rounds(figures: Sequence[Figure]) -> list[Figure]:
    """One figure for each name, from one figure of every round; a problem in any round stays."""
    names = dict.fromkeys(figure.name for figure in figures)
    return [_over_rounds([f for f in figures if f.name == name]) for name in names]


def _over_rounds(same: Sequence[Figure]) -> Figure:
    failed = next((figure for figure in same if figure.problem), None)
    if failed is not None:
        return failed
    seconds = tuple(figure.seconds for figure in same)
    peak = max(figure.peak_mb for figure in same)
    return replace(same[0], seconds=median(seconds), peak_mb=peak, rounds=seconds)


def ratio(figure: Figure, figures: Sequence[Figure]) -> float | None:
    """How many times faster than the peer; None when the peer was not measured."""
    base = next((other for other in figures if other.name == BASE and not other.problem), None)
    if base is None or figure is base or figure.problem:
        return None
    return figure.urls_per_second / base.urls_per_second


def comparison_lines(figures: Sequence[Figure], peers: Collection[str]) -> list[str]:
    """A line for each figure of ours: how it compares to each peer on the same files."""
    good = [figure for figure in figures if not figure.problem and figure.seconds]
    others = [figure for figure in good if figure.name in peers]
    return [
        f"{figure.name}: {', '.join(_compared_with(figure, other) for other in others)}"
        for figure in good
        if figure.name not in peers and others
    ]


def _compared_with(figure: Figure, other: Figure) -> str:
    times = figure.urls_per_second / other.urls_per_second
    return f"{times:.2f} x {other.name} ({'ahead' if times > 1 else 'behind'})"


def table(figures: Sequence[Figure]) -> str:
    """All figures in columns."""
    rows = [HEADINGS, *(_cells(figure, ratio(figure, figures)) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    return "\n".join(_line(row, widths) for row in rows)


def as_data(figures: Sequence[Figure]) -> list[dict[str, object]]:
    """All figures for a JSON file."""
    return [
        asdict(figure)
        | {"urls_per_second": figure.urls_per_second, "against_usp": ratio(figure, figures)}
        for figure in figures
    ]


def _cells(figure: Figure, against: float | None) -> tuple[str, ...]:
    if figure.problem:
        return (figure.name, *["-"] * (len(HEADINGS) - 2), figure.problem)
    return (
        figure.name,
        f"{figure.urls:,}",
        f"{figure.seconds:.2f}",
        _spread(figure),
        f"{figure.urls_per_second:,.0f}",
        f"{against:.2f} x" if against else "-",
        f"{figure.peak_mb:.0f}" if figure.peak_mb else "-",
        figure.note,
    )


def _spread(figure: Figure) -> str:
    """How far the fastest and the slowest round are from the median."""
    if len(figure.rounds) < 2:  # one round has no spread
        return "-"
    fastest, slowest = min(figure.rounds), max(figure.rounds)
    return f"-{1 - fastest / figure.seconds:.0%} +{slowest / figure.seconds - 1:.0%}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *numbers = row[:-1]
    cells = [first.ljust(widths[0])]
    cells += [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
    return "  ".join([*cells, row[-1]]).rstrip()
