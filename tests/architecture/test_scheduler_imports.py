"""The scheduler decides when; how a site is read and stored is the business of other rooms."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

NOT_ITS_BUSINESS = (
    "sqlalchemy",
    "aiohttp",
    "siteatlas.scanner",
    "siteatlas.net.client",
    "siteatlas.net.response",
    "siteatlas.processor.recorder",
    "siteatlas.processor.steps",
    "siteatlas.catalog.write_batch",
    "siteatlas.catalog.sitemaps",
    "siteatlas.catalog.url_copy",
    "siteatlas.catalog.urls",
)


@pytest.fixture(scope="module")
def imports(project: Path) -> dict[str, set[str]]:
    """What each module of the room imports; modules by their dotted name."""
    room = project / "src" / "siteatlas" / "scheduler"
    return {file.name: imported_by(file) for file in room.glob("*.py")}


def imported_by(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.criterion("scheduler-delegates")
def test_the_scheduler_reads_no_site_and_stores_no_document(imports: dict[str, set[str]]) -> None:
    found = {
        (file, name)
        for file, names in imports.items()
        for name in names
        if name.startswith(NOT_ITS_BUSINESS)
    }
    assert found == set()


@pytest.mark.criterion("scheduler-delegates")
def test_the_scheduler_hands_the_work_to_the_processor(imports: dict[str, set[str]]) -> None:
    assert "siteatlas.processor.processing.Processor" in imports["consumer.py"]
    assert "apscheduler.schedulers.asyncio.AsyncIOScheduler" in imports["sitemap_scheduler.py"]
