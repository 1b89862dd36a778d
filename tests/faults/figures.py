"""What the fault tests measured, as the table of the report."""

from __future__ import annotations

import math
import platform
from collections import defaultdict
from collections.abc import Sequence


class Figures:
    """Collects counts and times by name over one run of the tests."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = defaultdict(float)
        self._samples: dict[str, list[float]] = defaultdict(list)

    def count(self, name: str, number: float = 1) -> None:
        """Add to a count; adding 0 makes it appear."""
        self._counts[name] += number

    def sample(self, name: str, value: float) -> None:
        """Add one measurement."""
        self._samples[name].append(value)

    def lines(self) -> list[str]:
        """The table in Markdown; nothing when nothing was measured."""
        if not self._counts and not self._samples:
            return []
        rows = [f"| {name} | {number:g} |" for name, number in self._counts.items()]
        rows += [f"| {name} | {spread(values)} |" for name, values in self._samples.items()]
        machine = f"Python {platform.python_version()}, {platform.machine()}"
        return [machine, "| what | measured |", "|---|---|", *rows]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> str:
    """Median, p99 and maximum of some measurements."""
    middle, high = percentile(values, 0.5), percentile(values, 0.99)
    return f"median {middle:.2f}, p99 {high:.2f}, max {max(values):.2f} (of {len(values)})"
