"""The timings of all readers as a table of ratios, as data, and against our goals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from bench.shape_documents import SHAPES

T = TypeVar("T")

OURS = "our"
SCRAPY = "scrapy"


@dataclass(frozen=True, slots=True)
class Timing:
    """One reading of one document; a reader that found no URLs does not read this shape."""

    shape: str
    reader: str
    seconds: float
    urls: int


def table(timings: Sequence[Timing]) -> str:
    """A row for each shape: our speed, and how many times our CPU time each peer takes."""
    readers = _unique(timing.reader for timing in timings)
    peers = [reader for reader in readers if reader != OURS]
    rows = [["shape", "URLs per CPU second", "spread", *(f"{peer} takes" for peer in peers)]]
    for shape in _unique(timing.shape for timing in timings):
        ratios = (_cell(timings, shape, peer) for peer in peers)
        rows.append([shape, *_our_cells(timings, shape), *ratios])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def as_data(timings: Sequence[Timing]) -> list[dict[str, object]]:
    """For each shape and reader: URLs, all CPU seconds, and their median."""
    pairs = _unique((timing.shape, timing.reader) for timing in timings)
    return [
        {
            "shape": shape,
            "reader": reader,
            "urls": _urls(timings, shape, reader),
            "seconds": _seconds(timings, shape, reader),
            "median": median(_seconds(timings, shape, reader)),
            "times_ours": ratio(timings, shape, reader),
        }
        for shape, reader in pairs
    ]


def missed_goals(timings: Sequence[Timing]) -> list[str]:
    """A sentence for each peer that is faster than we want it to be."""
    missed = []
    for shape, reader in _unique((timing.shape, timing.reader) for timing in timings):
        times = ratio(timings, shape, reader)
        goal = SHAPES[shape].minimum if reader == SCRAPY else 1.0
        if reader != OURS and times is not None and times < goal:
            missed.append(f"{shape}: {reader} takes {times:.2f} times as long, the goal is {goal}.")
    return missed


def ratio(timings: Sequence[Timing], shape: str, reader: str) -> float | None:
    """How many times our CPU time a reader takes; None if it does not read this shape."""
    ours, theirs = _seconds(timings, shape, OURS), _seconds(timings, shape, reader)
    if not ours or not theirs or not _urls(timings, shape, reader):
        return None
    return median(theirs) / median(ours)


def _cell(timings: Sequence[Timing], shape: str, reader: str) -> str:
    times = ratio(timings, shape, reader)
    return "-" if times is None else f"{times:.1f} x"


def _our_cells(timings: Sequence[Timing], shape: str) -> tuple[str, str]:
    seconds = _seconds(timings, shape, OURS)
    if not seconds:
        return "-", "-"
    middle = median(seconds)
    spread = f"-{1 - min(seconds) / middle:.0%} +{max(seconds) / middle - 1:.0%}"
    return f"{_urls(timings, shape, OURS) / middle:,.0f}", spread


def _seconds(timings: Sequence[Timing], shape: str, reader: str) -> list[float]:
    return [
        timing.seconds for timing in timings if (timing.shape, timing.reader) == (shape, reader)
    ]


def _urls(timings: Sequence[Timing], shape: str, reader: str) -> int:
    found = (timing.urls for timing in timings if (timing.shape, timing.reader) == (shape, reader))
    return max(found, default=0)


def _unique(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    cells = [first.ljust(widths[0])]
    cells += [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
    return "  ".join(cells)
