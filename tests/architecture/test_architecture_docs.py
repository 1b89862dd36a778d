"""Documentation names code by what can be imported; docs/architecture.md names every package."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

from tests.fixtures.source_names import module_of

PAGE = "docs/architecture.md"
WALK = "## One scan, step by step"
MAX_MODULES_IN_WALK = 15
NAME = re.compile(r"`(siteatlas(?:\.\w+)+)")
# A file, a unit of systemd, and a key of Parquet metadata.
NOT_CODE = {"siteatlas.toml", "siteatlas.service", "siteatlas.as_of_seq"}
PATH = re.compile(r"`(?:src/siteatlas/)?((?:\w+/)+(?:\w+\.py)?)(?=[`:])")


def unknown_names(text: str) -> set[str]:
    """The names of a page that cannot be imported."""
    return {name for name in set(NAME.findall(text)) - NOT_CODE if not is_importable(name)}


def is_importable(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def named_paths(text: str, package: Path) -> set[str]:
    """The paths of modules and packages on a page: a name tells more, and it can be checked."""
    folders = {"/".join(name.split(".")[1:]) + "/" for name in packages(package)}
    rooms = {folder.partition("/")[0] for folder in folders}
    return {
        path
        for path in PATH.findall(text)
        if path in folders or (path.endswith(".py") and path.partition("/")[0] in rooms)
    }


def packages(package: Path) -> set[str]:
    return {module_of(file, package) for file in package.rglob("__init__.py")} - {package.name}


@pytest.fixture(scope="module")
def pages(project: Path) -> dict[str, str]:
    """Every page of the documentation, by its path."""
    files = [*project.glob("*.md"), *(project / "docs").rglob("*.md")]
    return {
        file.relative_to(project).as_posix(): file.read_text(encoding="utf-8") for file in files
    }


@pytest.mark.criterion("docs-correct")
def test_every_name_of_the_documentation_can_be_imported(pages: dict[str, str]):
    unknown = {path: names for path, text in pages.items() if (names := unknown_names(text))}
    assert unknown == {}


def test_the_documentation_names_no_source_file_by_its_path(pages: dict[str, str], package: Path):
    named = {path: paths for path, text in pages.items() if (paths := named_paths(text, package))}
    assert named == {}


def test_every_package_is_on_the_architecture_page(pages: dict[str, str], package: Path):
    assert packages(package) - set(NAME.findall(pages[PAGE])) == set()


def test_one_scan_is_explained_by_few_modules(pages: dict[str, str]):
    walk = pages[PAGE].partition(WALK)[2].partition("\n## ")[0]
    assert 0 < len(set(NAME.findall(walk))) <= MAX_MODULES_IN_WALK


def test_a_wrong_name_and_a_path_are_noticed(package: Path):
    text = "`siteatlas.queue.claims.claim`, `siteatlas.queue.claims.gone`, `siteatlas.gone.claim()`"
    assert unknown_names(text) == {"siteatlas.queue.claims.gone", "siteatlas.gone.claim"}
    text = (
        "`queue/claims.py`, `src/siteatlas/queue/claims.py: claim`, `queue/`, `scripts/`, `main.py`"
    )
    assert named_paths(text, package) == {"queue/claims.py", "queue/"}
