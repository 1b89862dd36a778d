"""Measures how Chromium loads the pages of a running `siteatlas serve`, with an empty cache.

The first byte and the load event are those of the browser. Of each page, axe judges the light and
the dark colours, and every message of the console counts.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, ConsoleMessage, Error

from bench.measured import our_command
from bench.serve_command import free_port, wait_until_healthy
from docs.screenshots import chromium

LOADS = 20
NAVIGATION = 'performance.getEntriesByType("navigation")[0]'
# The last value is the number of bytes of all resources; the stream of events has not ended.
TIMES = f"""() => {{
  const page = {NAVIGATION};
  const all = [page, ...performance.getEntriesByType("resource")];
  const bytes = all.reduce((sum, one) => sum + one.transferSize, 0);
  return [page.responseStart, page.loadEventEnd, bytes];
}}"""


@dataclass(frozen=True, slots=True)
class LoadFigure:
    """Milliseconds of the loads of one page in ascending order, and what is wrong with it."""

    path: str
    first_byte_ms: list[float]
    complete_ms: list[float]
    bytes: int
    faults: list[str]

    @property
    def line(self) -> str:
        """One row of the table."""
        times = "".join(
            f"{sorted_ms[round(share * (len(sorted_ms) - 1))]:8.0f}"
            for sorted_ms in (self.first_byte_ms, self.complete_ms)
            for share in (0.5, 0.95, 1)
        )
        return f"{self.path:<60.60}{times}{self.bytes / 1000:8.1f} {' '.join(self.faults)}".rstrip()


def load_table(figures: Sequence[LoadFigure]) -> str:
    """The figures as text."""
    head = f"{'Chromium':<60}{'first byte ms':>24}{'complete ms':>24}{'kB':>8} faults"
    names = f"{'':<60}{'p50     p95     max':>24}{'p50     p95     max':>24}"
    return "\n".join((head, names, *(figure.line for figure in figures)))


def measure_loads(folder: Path, paths: Sequence[str]) -> list[LoadFigure]:
    """Serve the database of this data directory, and load these pages."""
    with _serving(folder) as address, chromium() as browser:
        return [_measure(browser, address, path) for path in paths]


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """The address of a service that scans nothing."""
    port, log = free_port(), folder / "serve.log"
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"SITEATLAS_DATA_DIR": str(folder), "SITEATLAS_PORT": str(port)}
    with log.open("wb") as stderr:
        command = [str(our_command()), "serve", "--no-scheduler"]
        process = subprocess.Popen(command, env=environment, stderr=stderr)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_healthy(process, address, log)
            yield address
        finally:
            process.terminate()
            process.wait()


def _measure(browser: Browser, address: str, path: str) -> LoadFigure:
    """Load one page often; the first time fills the caches of the server and does not count."""
    loads, faults = list[list[float]](), set[str]()

    def note(said: ConsoleMessage | Error) -> None:
        if isinstance(said, Error) or said.type in {"error", "warning"}:
            faults.add(said.message if isinstance(said, Error) else said.text)

    for number in range(LOADS + 1):
        with browser.new_context(color_scheme="dark" if number % 2 else "light") as context:
            page = context.new_page()
            page.on("console", note)
            page.on("pageerror", note)
            page.goto(address + path)
            page.wait_for_function(f"{NAVIGATION}.loadEventEnd > 0")
            loads.append(page.evaluate(TIMES))
            if number < 2:
                found = Axe().run(page).response["violations"]
                faults |= {f"axe: {one['id']} {one['nodes'][0]['target']}" for one in found}
    first, complete, sizes = ([*of_one] for of_one in zip(*loads[1:], strict=True))
    return LoadFigure(path, sorted(first), sorted(complete), round(max(sizes)), sorted(faults))
