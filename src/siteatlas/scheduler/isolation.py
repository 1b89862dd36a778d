"""Runs suspects alone in their process, so that a crash can be attributed to one job.

Suspects follow each other in a series, for which the other jobs are stopped once. The queue selects
the suspects and decides what a death means (`queue.claims`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger
from siteatlas.queue.fence import Claim
from siteatlas.queue.suspects import clear_suspect, mark_alone
from siteatlas.scheduler.outages import ResilientLoop
from siteatlas.scheduler.slots import RunningJob, Slots, StopReason
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import get_queue_session

log = get_logger("scheduler")

GRACE_SECONDS = 3.0
STOP_SECONDS = 11.0
# The maximum time that a suspect runs alone, and that a series lasts before it is ended.
ISOLATION_SECONDS = 60.0
# The last suspect of a series starts within the first minute, and first waits for other jobs.
MAX_SERIES_SECONDS = 2 * ISOLATION_SECONDS + GRACE_SECONDS + STOP_SECONDS


class Isolation:
    """One per process. `on_end` is called when jobs may be claimed again."""

    def __init__(self, slots: Slots, on_end: Callable[[], None]) -> None:
        self._slots = slots
        self._on_end = on_end
        self._suspect: RunningJob | None = None
        self._watch: asyncio.Task[None] | None = None
        self._series_began: float | None = None
        self._next_series_at = 0.0

    @property
    def is_active(self) -> bool:
        """Whether a suspect runs alone or is about to, so that nothing may be claimed."""
        return self._suspect is not None

    @property
    def is_paused(self) -> bool:
        """Whether suspects have to wait, because it is the turn of the other jobs."""
        return self._series_began is None and time.monotonic() < self._next_series_at

    def reserve(self, suspect: RunningJob) -> None:
        """Stop claiming other jobs, because this suspect has been claimed."""
        self._suspect = suspect
        if self._series_began is None:
            self._series_began = time.monotonic()

    async def isolate(self, job: RunningJob) -> None:
        """If this job is the suspect, stop the others; from then on a death is attributed to it."""
        if job is not self._suspect:
            return
        log.warning("job_isolated", job_id=str(job.claim.job_id), domain=job.claim.domain)
        if await self._stop_other_jobs(job):
            await _record_isolation(job.claim)
        else:
            log.warning("isolation_incomplete", job_id=str(job.claim.job_id))
        self._watch = asyncio.create_task(self._watch_suspect(job))

    def end(self, job: RunningJob) -> None:
        """If the job that ended is the suspect, end its isolation."""
        if job is not self._suspect:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._let_others_follow()

    def end_series(self) -> None:
        """Let the other jobs run for at least as long as the series before the next suspect."""
        if self._series_began is None:
            return
        now = time.monotonic()
        # A series does not last while the process has nothing to do.
        duration = min(now - self._series_began, MAX_SERIES_SECONDS)
        self._next_series_at = now + max(ISOLATION_SECONDS, duration)
        self._series_began = None

    async def _stop_other_jobs(self, suspect: RunningJob) -> bool:
        """Let short jobs end, then stop the others. Return whether all of them have ended."""
        others = [job for job in self._slots.jobs() if job is not suspect]
        tasks = [job.task for job in others if job.task is not None]
        if not tasks:
            return True
        await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for job in others:
            job.stop(StopReason.SHUTDOWN)
        _, running = await asyncio.wait(tasks, timeout=STOP_SECONDS)
        return not running

    async def _watch_suspect(self, suspect: RunningJob) -> None:
        """End the isolation after the first document, or clear the suspect after a minute."""
        try:
            async with asyncio.timeout(ISOLATION_SECONDS):
                await suspect.activity.document_committed.wait()
        except TimeoutError:
            await _clear_when_possible(suspect.claim)
        # The job keeps running; claiming another suspect now would stop it.
        self.end_series()
        self._let_others_follow()

    def _let_others_follow(self) -> None:
        """Let jobs be claimed again; while the series goes on, suspects first."""
        self._suspect = self._watch = None
        began = self._series_began
        if began is not None and time.monotonic() - began >= ISOLATION_SECONDS:
            self.end_series()
        self._on_end()


async def _record_isolation(claim: Claim) -> None:
    """Record that a suspect is alone; if that fails, its death counts as that of any other job."""
    try:
        await _mark_alone(claim)
    except DatabaseError as error:
        log.warning("isolation_incomplete", job_id=str(claim.job_id), error=error.code)


@retry_when_busy
async def _mark_alone(claim: Claim) -> None:
    async with get_queue_session() as session, session.begin():
        await mark_alone(session, claim)


async def _clear_when_possible(claim: Claim) -> None:
    """Clear a suspect that survived; until then, nothing else may run beside it."""
    resilient_loop, is_cleared = ResilientLoop("isolation"), False
    while not is_cleared:
        async with resilient_loop.iteration():
            async with get_queue_session() as session, session.begin():
                await clear_suspect(session, claim)
            is_cleared = True
