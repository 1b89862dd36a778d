"""`siteatlas domains explain`: one sentence that says why a site is not being scanned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import func

from siteatlas.cli.commands.domains import _explain
from siteatlas.errors import DomainNotFound
from siteatlas.queue.completion import fail, release
from siteatlas.queue.fence import WorkerReport, report_worker
from siteatlas.settings import Secret, Settings
from siteatlas.storage.session import Database, bind_database
from tests.fixtures.database import transaction
from tests.fixtures.queue import change, submit, take_one
from tests.fixtures.records import add_domain, add_job

Explain = Callable[[], Awaitable[str]]
SITE = "example.com"
LATER = func.now() + timedelta(hours=2, minutes=5)


@pytest.fixture
def explained(database: Database, database_url: str) -> Explain:
    """Runs the command on the database of the test."""

    async def explain() -> str:
        try:
            return await _explain(Settings(database_url=Secret(database_url)), f"https://{SITE}/")
        finally:
            bind_database(database)

    return explain


@pytest_asyncio.fixture
async def worker(database: Database) -> None:
    """A process that runs jobs."""
    async with transaction() as session:
        await report_worker(session, WorkerReport("w", "host", 1, "1", slots=1, running=0))


async def add_site(**columns: Any) -> None:
    async with transaction() as session:
        await add_domain(session, SITE, **columns)


async def test_an_unknown_site_is_not_explained(explained: Explain):
    with pytest.raises(DomainNotFound):
        await explained()


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "is not watched (never scanned); watch it: siteatlas domains add example.com."),
        (
            {"watched": True, "paused": True, "next_scan_at": LATER},
            "is paused (never scanned); resume it: siteatlas domains resume example.com.",
        ),
        (
            {
                "watched": True,
                "next_scan_at": LATER,
                "last_scan_at": func.now() - timedelta(days=1),
            },
            "was scanned 1 d ago; the next scan is due in 2 h.",
        ),
        (
            {"watched": True, "next_scan_at": func.now() - timedelta(hours=3)},
            "was never scanned; the next scan is due 3 h ago and not queued yet.",
        ),
    ],
)
async def test_a_site_without_a_job(explained: Explain, columns: dict[str, Any], words: str):
    await add_site(**columns)
    assert await explained() == f"{SITE} {words}"


async def test_a_site_that_fails_says_since_when_and_why(explained: Explain, worker: None):
    async with transaction() as session:
        failing = {"last_error_code": "no_sitemap", "failures_in_a_row": 3}
        site = await add_domain(session, SITE, watched=True, next_scan_at=LATER, **failing)
        for days in (9, 3, 2, 1):
            ended = func.now() - timedelta(days=days)
            await add_job(session, site, status="failed", finished_at=ended)
    sentence = await explained()
    assert sentence.startswith(f"{SITE} failed 3 times, first 3 d ago: no_sitemap, ")
    assert sentence.endswith("; the next scan is due in 2 h.")


async def test_without_a_worker_every_sentence_ends_with_the_remedy(explained: Explain):
    await submit(SITE)
    assert (await explained()).endswith("No worker is running. Start one: siteatlas serve")


@pytest.mark.usefixtures("worker")
async def test_a_site_in_the_queue_says_how_many_jobs_come_first(explained: Explain):
    for first in ("a.example", "b.example"):
        await submit(first)
    job = await submit(SITE)
    await submit("c.example")
    waits = f"{SITE} waits as job {job.id} for a free slot, behind 2 jobs."
    assert await explained() == waits


@pytest.mark.usefixtures("worker")
async def test_a_site_that_is_tried_again_later_says_what_happened(explained: Explain):
    job = await submit(SITE)
    claim = await take_one()
    assert (await explained()).startswith(f"{SITE} is being scanned: job {job.id} began just now.")
    async with transaction() as session:
        await fail(session, claim, code="timeout", message="Too slow.", transient=True)
    await change(job.id, run_at=LATER)
    assert await explained() == (
        f"{SITE} waits as job {job.id}, to run in 2 h: its last attempt was retried (timeout)."
    )
    await change(job.id, run_at=func.now())
    claim = await take_one()
    async with transaction() as session:
        await release(session, claim, pause_seconds=90, snooze=True, reason="rate_limited")
    assert "snoozed (rate_limited)" in await explained()
