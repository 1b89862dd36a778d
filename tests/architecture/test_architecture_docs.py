"""docs/architecture.md names every package, and nothing that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = "docs/architecture.md"
ORIGINS = "## From the source documents"
WALK = "## One scan, step by step"
MAX_FILES_IN_WALK = 15
MODULE = re.compile(r"`((?:\w+/)*\w+\.py)(?:: (\w+)(?:\.(\w+))?)?")
FOLDER = re.compile(r"`((?:\w+/)+)`")
NOT_PACKAGES = {"__pycache__", "vendor", "swagger-ui"}


def named_modules(page: str) -> Iterator[tuple[str, ...]]:
    """Paths with the names said to be in them; first cells of the origin tables are skipped."""
    text, _, origins = page.partition(ORIGINS)
    cells = (line.split("|", 2)[-1] for line in origins.splitlines() if line.startswith("|"))
    yield from MODULE.findall("\n".join((text, *cells)))


def missing_modules(page: str, project: Path) -> list[tuple[str, ...]]:
    return [module for module in named_modules(page) if not exists(project, *module)]


def exists(project: Path, path: str, *names: str) -> bool:
    places = (project / "src/siteatlas" / path, project / path)
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        return False
    code = file.read_text(encoding="utf-8")
    return all(re.search(rf"\b{name}\b", code) for name in names if name)


def missing_folders(page: str, project: Path) -> set[str]:
    package = project / "src/siteatlas"
    folders = (path for path in package.rglob("*") if path.is_dir())
    known = {
        f"{folder.relative_to(package).as_posix()}/"
        for folder in folders
        if not NOT_PACKAGES & set(folder.relative_to(package).parts)
    }
    return known - set(FOLDER.findall(page))


@pytest.fixture
def page(project: Path) -> str:
    return (project / PAGE).read_text(encoding="utf-8")


def test_every_module_and_name_on_the_architecture_page_exists(page: str, project: Path):
    assert len(list(named_modules(page))) > MAX_FILES_IN_WALK
    assert missing_modules(page, project) == []


def test_every_folder_of_the_package_is_on_the_architecture_page(page: str, project: Path):
    assert missing_folders(page, project) == set()


def test_one_scan_is_explained_by_few_files(page: str):
    walk = page.partition(WALK)[2].partition("\n## ")[0]
    files = {module[0] for module in MODULE.findall(walk)}
    assert 0 < len(files) <= MAX_FILES_IN_WALK


def test_a_wrong_module_a_wrong_name_and_a_missing_folder_are_noticed(page: str, project: Path):
    wrong = page.replace("queue/claims.py: claim`", "queue/claims.py: no_such_name`")
    wrong = wrong.replace("`main.py`", "`no_such_module.py`").replace("`net/`", "net")
    assert {module[:2] for module in missing_modules(wrong, project)} == {
        ("queue/claims.py", "no_such_name"),
        ("no_such_module.py", ""),
    }
    assert missing_folders(wrong, project) == {"net/"}
