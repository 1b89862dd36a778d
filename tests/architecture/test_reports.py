"""The completion reports have the shape of the earlier one, and figures of a run that names itself."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

# An import statement cannot name a folder with a hyphen.
figures = import_module("docs.source-documents.reports.figures")

REPORTS = (
    "07-69-SITEMAP-SCANNER-BACKGROUND-SERVICE-STANDARDIZATION-COMPLETION",
    "13.8-SITEMAP-SCHEDULER-INTEGRATION-COMPLETION",
)
HEADER = ("Document ID", "Date", "Status", "Priority", "Related Documents")
SECTIONS = [
    "Executive Summary",
    "Issues Addressed",
    "Changes Implemented",
    "Testing Methodology",
    "Testing Results",
    "Verification Checklist",
    "Architectural Compliance",
    "Departures from the Documents",
    "Remaining Issues",
    "Lessons Learned",
    "Conclusion",
]
ORIGIN = r"Run of \d{4}-\d\d-\d\d \d\d:\d\d, commit `[0-9a-f]{7,}[^`]*`, Python 3\.\d+\.\d+, embedded PostgreSQL \d+\.\d+:"
JUNIT = """<testsuites><testsuite time="12.3" timestamp="2026-11-16T10:20:30.000001+00:00">
<testcase classname="tests.api.routers.test_scans" name="a"/>
<testcase classname="tests.api.routers.test_scans" name="b"><failure message="no"/></testcase>
<testcase classname="tests.api.routers.test_jobs" name="c"><skipped message="no"/></testcase>
<testcase classname="tests.storage.database.test_session" name="d"/>
<testcase classname="tests.queue.database.test_claims" name="e"><error/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(params=REPORTS)
def report(project: Path, request: pytest.FixtureRequest) -> tuple[str, str]:
    """The name and the text of a report."""
    path = project / "docs" / "source-documents" / "reports" / f"{request.param}.md"
    return request.param, path.read_text(encoding="utf-8")


@pytest.mark.criterion("completion-reports")
def test_a_report_has_the_shape_of_the_earlier_one(report: tuple[str, str]) -> None:
    name, page = report
    head = page[: page.index("## 1.")]
    assert re.findall(r"^\*\*(.+?):\*\*", head, re.MULTILINE) == list(HEADER)
    assert f"**Document ID:** {name}\n" in head
    headings = re.findall(r"^## (\d+)\. (.+)$", page, re.MULTILINE)
    assert headings == [(str(n), title) for n, title in enumerate(SECTIONS, start=1)]
    checklist = page[page.index("## 6.") : page.index("## 7.")]
    assert len(re.findall("^- ✅ ", checklist, re.MULTILINE)) >= 7


@pytest.mark.criterion("completion-reports")
def test_the_figures_of_a_report_name_their_run(report: tuple[str, str]) -> None:
    (block,) = figures.BLOCK.findall(report[1])
    assert re.search(ORIGIN, block)
    rows = re.findall(r"^\| `(tests/\S+)` \| (.+) \|$", block, re.MULTILINE)
    assert tuple(group for group, _ in rows) == figures.GROUPS
    ran = [counts.split(" | ") for _, counts in rows if not counts.startswith("not run")]
    assert len(ran) >= 6
    assert {failed for _passed, failed, _skipped in ran} == {"0"}


def test_both_reports_have_the_same_figures(project: Path) -> None:
    folder = project / "docs" / "source-documents" / "reports"
    pages = [(folder / f"{name}.md").read_text(encoding="utf-8") for name in REPORTS]
    assert len({match for page in pages for match in figures.BLOCK.findall(page)}) == 1


def test_figures_are_counted_from_the_results_of_a_run(tmp_path: Path) -> None:
    junit = tmp_path / "tests.xml"
    junit.write_text(JUNIT, encoding="utf-8")
    run = figures.read_run(junit)
    assert run.counts() == {"passed": 2, "failed": 2, "skipped": 1}
    assert run.counts("tests/api") == {"passed": 1, "failed": 1, "skipped": 1}
    assert run.counts("tests/storage/database/test_session.py") == {"passed": 1}
    assert "| `tests/storage` | 1 | 0 | 0 |" in figures.table(run, None)
    assert "| `tests/catalog` | not run | | |" in figures.table(run, None)
    assert "| together, in 12 s | 2 | 2 | 1 |" in figures.table(run, None)
    assert "| through PgBouncer | not run | | |" in figures.table(run, None)
    assert "| through PgBouncer, in 12 s | 2 | 2 | 1 |" in figures.table(run, run)
