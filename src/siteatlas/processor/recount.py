"""Updates the counters of a site after a scan that was not published.

Separate from the end of the job, because counting a large site takes long.
"""

from __future__ import annotations

import asyncio

from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger
from siteatlas.storage.session import AsyncSession, get_job_session
from siteatlas.storage.statements.distinct_urls import count_distinct_urls
from siteatlas.storage.statements.domain_results import (
    correct_domain_counts,
    count_domain,
    recorded_domain_counts,
)
from siteatlas.storage.statements.scans import ScanCounts, scanned_domain

log = get_logger("processor")

# Less than the driver waits for a statement, so that the server stops it first.
RECOUNT_SECONDS = 50


class Recounts:
    """Recounts sites in the background. One per process: it holds the tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, *job_ids: int) -> None:
        """Count the sites that these jobs scanned; they have ended without publishing."""
        for job_id in job_ids:
            task = asyncio.create_task(recount_site(job_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float | None = None) -> None:
        """Wait for what is being counted, at most so long; the rest is left to the next scan."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()


async def recount_site(job_id: int) -> None:
    """Bring the counters of the site that a job scanned in line with its rows.

    What goes wrong is logged and nothing more: the job has ended, and the next scan counts again.
    """
    try:
        async with (
            get_job_session(statement_seconds=RECOUNT_SECONDS) as session,
            session.begin(),
        ):
            await _recount(session, job_id)
    except DatabaseError as error:
        log.warning("domain_recount_failed", job=job_id, reason=error.code)
    except Exception:
        log.exception("domain_recount_failed", job=job_id)


async def _recount(session: AsyncSession, job_id: int) -> None:
    """Counters that a newer scan wrote meanwhile are left as they are."""
    domain_id = await scanned_domain(session, job_id)
    if domain_id is None:
        return
    recorded = await recorded_domain_counts(session, domain_id)
    sitemaps, urls = await count_domain(session, domain_id)
    if (sitemaps, urls) == (recorded.sitemaps, recorded.urls):
        return
    distinct = urls if sitemaps <= 1 else await count_distinct_urls(session, domain_id, urls)
    counts = ScanCounts(sitemaps, urls, distinct)
    await correct_domain_counts(session, domain_id, counts, instead_of=recorded)
