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
# What the documents asked for, and is called otherwise here or left out.
NAMES_OF_THE_DOCUMENTS = {
    "MissingGreenlet",
    "VARCHAR",
    "error_message",
    "id UUID",
    "src/routers",
    "src/services",
}
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
    # A record of its day: groups may have been added since.
    assert {group for group, _ in rows} <= set(figures.GROUPS)
    ran = [counts.split(" | ") for _, counts in rows if not counts.startswith("not run")]
    assert len(ran) >= 6
    assert {failed for _passed, failed, _skipped in ran} == {"0"}


@pytest.mark.criterion("completion-reports", "docs-correct")
def test_every_name_in_a_report_exists(report: tuple[str, str], project: Path) -> None:
    assert unknown_names(report[1], project) == set()


def test_names_that_do_not_exist_are_noticed(project: Path) -> None:
    text = "`Processor.run` `Processor._outcome` `give_back` `tests/gone.py` `tests/queue` `SITEATLAS_X`"
    assert unknown_names(text, project) == {
        "Processor._outcome",
        "give_back",
        "tests/gone.py",
        "SITEATLAS_X",
    }


def unknown_names(page: str, project: Path) -> set[str]:
    """The names between backticks of which a part is no word of the code, or no file."""
    sources = [project / "Makefile", project / "docker-compose.yml", *project.glob("src/**/*.py")]
    known = {word for file in sources for word in re.findall(r"\w+", file.read_text("utf-8"))}
    names = set(re.findall(r"`([^`\n]+)`", figures.BLOCK.sub("", page))) - NAMES_OF_THE_DOCUMENTS
    files = {name for name in names if "/" in name or name == "docker-compose.yml"}
    missing = {name for name in files if not (project / name).exists()}
    return missing | {name for name in names - files if not known.issuperset(words(name))}


def words(name: str) -> list[str]:
    """The words of a name, without values such as the number in `limit=10` or in an id."""
    return re.findall(r"\b[A-Za-z_]\w*", name)


def test_every_room_has_its_figures(project: Path) -> None:
    rooms = {f"tests/{path.name}" for path in project.glob("src/siteatlas/*/")}
    tested = {room for room in rooms if any((project / room).rglob("test_*.py"))}
    assert tested - set(figures.GROUPS) - {"tests/demo"} == set()


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
