"""Runs the tests and writes their results into the completion reports.

`make reports` runs `make test` and `make test-pooled` and replaces the block between the two
markers of each report. `--junit FILE` and `--pooled FILE` take the results of runs that were made
before; the commit is then that of the checkout, so it must not have moved since.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as ET

from siteatlas.storage.embedded.files import installed_programs

FOLDER = Path(__file__).resolve().parent
PROJECT = FOLDER.parents[2]
BEGINNING = "<!-- figures: written by make reports -->"
END = "<!-- end of the figures -->"
BLOCK = re.compile(f"{re.escape(BEGINNING)}.*?{re.escape(END)}", re.DOTALL)
GROUPS = (
    "tests/scheduler",
    "tests/queue",
    "tests/processor",
    "tests/storage/database/test_session.py",
    "tests/storage/database/test_engine_pooler.py",
    "tests/storage",
    "tests/catalog",
    "tests/findings",
    "tests/scanner",
    "tests/findings",
    "tests/net",
    "tests/notify",
    "tests/export",
    "tests/access",
    "tests/api",
    "tests/web",
    "tests/cli",
    "tests/acceptance",
    "tests/architecture",
    "tests/browser",
)
NOT_PASSED = {"failure": "failed", "error": "failed", "skipped": "skipped"}


@dataclass
class Run:
    """The results of one run: an outcome for each test, how long it took, and when it began."""

    outcomes: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    started: datetime | None = None

    def counts(self, group: str = "tests") -> Counter[str]:
        """How many tests below a folder, or in a file, had which outcome."""
        prefix = group.removesuffix(".py").replace("/", ".")
        return Counter(
            outcome
            for name, outcome in self.outcomes
            if name == prefix or name.startswith(f"{prefix}.")
        )


def read_run(report: Path) -> Run:
    """The test run in a JUnit file."""
    run = Run()
    for suite in ET.parse(report).iter("testsuite"):  # noqa: S314 written by pytest
        run.seconds += float(suite.get("time", 0))
        run.started = datetime.fromisoformat(suite.attrib["timestamp"])
        for case in suite.iter("testcase"):
            endings = [NOT_PASSED[part.tag] for part in case if part.tag in NOT_PASSED]
            run.outcomes.append((case.get("classname", ""), endings[0] if endings else "passed"))
    return run


def table(run: Run, pooled: Run | None) -> str:
    """The results by folder, then all of them, then those through the pooler."""
    lines = ["| tests | passed | failed | skipped |", "|---|---|---|---|"]
    lines += [_row(f"`{group}`", run.counts(group)) for group in GROUPS]
    lines.append(_row(f"together, in {run.seconds:.0f} s", run.counts()))
    if pooled is None:
        lines.append(_row("through PgBouncer", Counter()))
    else:
        lines.append(_row(f"through PgBouncer, in {pooled.seconds:.0f} s", pooled.counts()))
    return "\n".join(lines)


def _row(label: str, counts: Counter[str]) -> str:
    if not counts.total():
        return f"| {label} | not run | | |"
    numbers = " | ".join(f"{counts[word]:,}" for word in ("passed", "failed", "skipped"))
    return f"| {label} | {numbers} |"


def block(run: Run, pooled: Run | None, commit: str) -> str:
    """The part of a report between the markers, with them."""
    started = run.started.strftime("%Y-%m-%d %H:%M") if run.started else "an unknown time"
    origin = (
        f"Run of {started}, commit `{commit}`, Python {platform.python_version()}, "
        f"embedded PostgreSQL {installed_programs().version()}:"
    )
    return f"{BEGINNING}\n{origin}\n\n{table(run, pooled)}\n{END}"


def write(text: str) -> list[Path]:
    """Put the block into each report."""
    reports = sorted(FOLDER.glob("*-COMPLETION.md"))
    for report in reports:
        page = report.read_text(encoding="utf-8")
        changed, count = BLOCK.subn(lambda _match: text, page)
        if count != 1:
            sys.exit(f"{report.name} has {count} blocks for figures; it needs one.")
        report.write_text(changed, encoding="utf-8")
    return reports


def run_tests(target: str) -> Path:
    """Run a target of the Makefile; where its results are, if it ran anything."""
    report = PROJECT / "build" / f"{target}.xml"
    report.unlink(missing_ok=True)
    make = shutil.which("make") or sys.exit("make was not found.")
    subprocess.run([make, target, f"ARGS=--junitxml={report}"], cwd=PROJECT, check=False)
    return report


def commit_of_the_checkout() -> str:
    git = shutil.which("git") or sys.exit("git was not found.")

    def said(*arguments: str) -> str:
        command = [git, "-C", str(PROJECT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = said("status", "--porcelain", "--", ".", f":!{FOLDER.relative_to(PROJECT)}")
    return said("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--junit", type=Path, help="results of a run without a pooler")
    arguments.add_argument("--pooled", type=Path, help="results of a run through PgBouncer")
    given = arguments.parse_args()
    commit = commit_of_the_checkout()
    junit = given.junit or run_tests("test")
    pooled = given.pooled or (None if given.junit else run_tests("test-pooled"))
    if not junit.is_file():
        sys.exit("The tests left no results.")
    run = read_run(junit)
    through_pooler = read_run(pooled) if pooled and pooled.is_file() else None
    for report in write(block(run, through_pooler, commit)):
        print(f"wrote {report.relative_to(PROJECT)}")
    failed = sum(one.counts()["failed"] for one in (run, through_pooler) if one)
    if failed:
        print(f"{failed} tests failed; the reports say so.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
