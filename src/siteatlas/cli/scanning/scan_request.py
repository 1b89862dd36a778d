"""What one call of `siteatlas scan` writes, and what makes it fail."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from siteatlas.cli.scanning.entry_filter import EntryFilter
from siteatlas.cli.scanning.formats import ScanFormat
from siteatlas.cli.terminal.options import FailOn
from siteatlas.cli.terminal.output import is_terminal
from siteatlas.scanner.report import ScanReport

STREAMED = frozenset({ScanFormat.URLS, ScanFormat.JSONL, ScanFormat.CSV})


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What one `siteatlas scan` writes, in which format and where, and what counts as a failure.

    `readers` is how many processes may read documents beside the first one.
    """

    format: ScanFormat
    output: Path | None
    max_urls: int | None
    wanted: EntryFilter
    timeout: float | None
    fail_on: FailOn
    readers: int = 0

    @property
    def is_streamed(self) -> bool:
        """Whether the format is written while the scan runs, not at its end."""
        return self.format in STREAMED

    @property
    def writes_to_terminal(self) -> bool:
        """Whether the scan writes its data to a terminal."""
        return self.output is None and is_terminal(sys.stdout)

    def is_failure(self, report: ScanReport) -> bool:
        """Whether `--fail-on` makes a finished scan a failure."""
        return self.fail_on.counts_as_failure(
            partial=report.partial, problems=bool(report.problems)
        )
