"""Measures `siteatlas scan`: the whole site as lines of JSON, without a database."""

from __future__ import annotations

import os
from pathlib import Path

from bench.figure import Figure
from bench.measured import last_lines, our_command, run_measured


def measure_scan(_folder: Path, base_url: str, urls: int) -> Figure:
    """Scan the site once with the output thrown away."""
    allowed = base_url.removeprefix("http://")
    result = run_measured(
        [our_command(), "scan", base_url, "--format", "jsonl"],
        {**os.environ, "SITEATLAS_EGRESS_ALLOW": allowed},
        with_children=True,
    )
    if result.exit_code:
        return Figure("scan", problem=last_lines(result.stderr))
    return Figure("scan", urls, result.seconds, result.peak_mb, "siteatlas scan, stores nothing")
