"""The hand-written documentation stays short, and still names every module in its room."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from docs.generate import PAGES
from tests.fixtures.source_names import module_of

# An import statement cannot name a folder with a hyphen.
figures = import_module("docs.source-documents.reports.figures")

MAX_WORDS = 36_500
MAX_WORDS_OF_ARCHITECTURE = 2_500
MAX_DECISIONS = 15
# `make conformance` writes the second one: it runs other tools, so `make docs` does not.
GENERATED = {*PAGES, "reference/conformance.md"}
ROOM = re.compile(r"^\| `(siteatlas[\w.]*)` \| (.+) \|$", re.MULTILINE)
FILE = re.compile(r"`(\w+)`")
# Their files are numbered, not named.
REVISIONS = "siteatlas.storage.migrations.versions"


def count_words(text: str) -> int:
    """The words as `wc -w` counts them, without those that `make reports` writes."""
    return len(figures.BLOCK.sub("", text).split())


@pytest.fixture(scope="module")
def words(project: Path) -> dict[str, int]:
    """The number of words of every hand-written page, by its path."""
    generated = {project / "docs" / name for name in GENERATED}
    pages = {*project.glob("*.md"), *project.glob("docs/**/*.md")} - generated
    return {
        page.relative_to(project).as_posix(): count_words(page.read_text(encoding="utf-8"))
        for page in pages
    }


def test_the_hand_written_pages_are_short_together(words: dict[str, int]):
    longest = sorted(words.items(), key=lambda page: -page[1])[:10]
    assert sum(words.values()) <= MAX_WORDS, f"longest pages: {longest}"


def test_the_architecture_fits_one_reading(words: dict[str, int]):
    assert words["docs/architecture.md"] <= MAX_WORDS_OF_ARCHITECTURE


def test_the_architecture_names_every_module_in_its_room(project: Path, package: Path):
    page = (project / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = {f"{room}.{file}" for room, files in ROOM.findall(page) for file in FILE.findall(files)}
    modules = {module_of(file, package) for file in package.rglob("[!_]*.py")}
    expected = {module for module in modules if not module.startswith(REVISIONS)}
    assert named == expected


def test_there_are_few_decision_records(project: Path):
    assert len(list((project / "docs" / "decisions").glob("*.md"))) <= MAX_DECISIONS


def test_every_generated_page_is_left_out(project: Path, words: dict[str, int]):
    assert all((project / "docs" / name).exists() for name in GENERATED)
    assert not {f"docs/{name}" for name in GENERATED} & set(words)


def test_the_figures_of_a_report_are_not_counted():
    text = f"two words {figures.BEGINNING} many more words {figures.END} and three more"
    assert count_words(text) == 5
