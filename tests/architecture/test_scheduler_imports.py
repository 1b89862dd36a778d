"""The scheduler decides when; how a site is read and stored is the business of other rooms."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.fixtures.source_names import modules_in

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
# When a job is waiting or has lost its lease, another one gets its slot.
ITS_BUSINESS = {
    "siteatlas.net.client.Waits",
    "siteatlas.net.client.observe_waits",
    "siteatlas.processor.steps.JobActivity",
    "siteatlas.processor.steps.terminate_stalled_writers",
}


@pytest.fixture(scope="module")
def imports(package: Path) -> set[str]:
    """What the modules of the room import."""
    files = modules_in("siteatlas.scheduler", package)
    return {name for file in files for name in imported_by(file)}


def imported_by(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.criterion("scheduler-delegates")
def test_the_scheduler_reads_no_site_and_stores_no_document(imports: set[str]) -> None:
    assert {name for name in imports if name.startswith(NOT_ITS_BUSINESS)} == ITS_BUSINESS


@pytest.mark.criterion("scheduler-delegates")
def test_the_scheduler_hands_the_work_to_the_processor(imports: set[str]) -> None:
    assert {
        "siteatlas.processor.processing.Processor",
        "apscheduler.schedulers.asyncio.AsyncIOScheduler",
    } <= imports
