"""Jobs that run alone: after two deaths of its worker, a third must be the fault of this job.

The process that claims such a job gives its other jobs a moment to end and returns the rest to the
queue. If the worker dies then, the job fails as poison when it is rescued. If the job finishes a
document or runs for a minute, its deaths are forgotten and others run beside it. Several such jobs
run one after another for a minute; then it is the turn of the other jobs for as long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger
from siteatlas.queue.fence import Claim
from siteatlas.queue.rescues import clear_deaths, mark_alone
from siteatlas.scheduler.outages import ResilientLoop
from siteatlas.scheduler.slots import RunningJob, Slots, StopReason
from siteatlas.storage.session import get_background_session, retry_when_busy

log = get_logger("scheduler")

GRACE_SECONDS = 3.0
STOP_SECONDS = 11.0
# The maximum time that a job runs alone, and that such jobs follow one another.
ALONE_SECONDS = 60.0


class Alone:
    """One per process: the job that runs alone. `on_end` is called when others may be claimed."""

    def __init__(self, slots: Slots, on_end: Callable[[], None]) -> None:
        self._slots = slots
        self._on_end = on_end
        self._job: RunningJob | None = None
        self._watch: asyncio.Task[None] | None = None
        self._since: float | None = None
        self._not_before = 0.0

    @property
    def is_active(self) -> bool:
        """Whether a job runs alone or is about to, so that nothing may be claimed."""
        return self._job is not None

    @property
    def is_paused(self) -> bool:
        """Whether jobs that run alone have to wait, because it is the turn of the others."""
        return self._since is None and time.monotonic() < self._not_before

    def add(self, job: RunningJob) -> None:
        """Claim nothing else from now on: this job has to run alone."""
        self._job = job
        if self._since is None:
            self._since = time.monotonic()
        self._slots.add_waiting(job)

    async def stop_others(self, job: RunningJob) -> None:
        """If this job has to run alone, stop the others; a death is then its own."""
        if job is not self._job:
            return
        log.warning("job_isolated", job_id=str(job.claim.job_id), domain=job.claim.domain)
        if await self._others_ended(job):
            await _record_alone(job.claim)
        else:
            log.warning("isolation_incomplete", job_id=str(job.claim.job_id))
        self._watch = asyncio.create_task(self._watch_job(job))

    def end(self, job: RunningJob) -> None:
        """The job that ended may have been the one that ran alone."""
        if job is not self._job:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._let_others_follow()

    def give_way(self) -> None:
        """Let the other jobs run for at least as long as these did before the next of them."""
        if self._since is None:
            return
        now = time.monotonic()
        # They do not follow one another while the process has nothing to do: the last one starts
        # within the first minute, and first waits for other jobs.
        longest = 2 * ALONE_SECONDS + GRACE_SECONDS + STOP_SECONDS
        self._not_before = now + max(ALONE_SECONDS, min(now - self._since, longest))
        self._since = None

    async def _others_ended(self, alone: RunningJob) -> bool:
        others = [job for job in self._slots.jobs() if job is not alone]
        tasks = [job.task for job in others if job.task is not None]
        if not tasks:
            return True
        await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for job in others:
            job.stop(StopReason.SHUTDOWN)
        _, running = await asyncio.wait(tasks, timeout=STOP_SECONDS)
        return not running

    async def _watch_job(self, job: RunningJob) -> None:
        try:
            async with asyncio.timeout(ALONE_SECONDS):
                await job.activity.document_committed.wait()
        except TimeoutError:
            await _clear_when_possible(job.claim)
        # The job keeps running; claiming another of its kind now would stop it.
        self.give_way()
        self._let_others_follow()

    def _let_others_follow(self) -> None:
        """Let jobs be claimed again; for a minute, those that run alone come first."""
        self._job = self._watch = None
        if self._since is not None and time.monotonic() - self._since >= ALONE_SECONDS:
            self.give_way()
        self._on_end()


async def _record_alone(claim: Claim) -> None:
    """Record that a job is alone; if that fails, its death counts as that of any other job."""
    try:
        await _mark_alone(claim)
    except DatabaseError as error:
        log.warning("isolation_incomplete", job_id=str(claim.job_id), error=error.code)


@retry_when_busy
async def _mark_alone(claim: Claim) -> None:
    async with get_background_session(for_queue=True) as session, session.begin():
        await mark_alone(session, claim)


async def _clear_when_possible(claim: Claim) -> None:
    """Clear a job that survived alone; until then, nothing else may run beside it."""
    resilient_loop, is_cleared = ResilientLoop("alone"), False
    while not is_cleared:
        async with resilient_loop.iteration():
            async with get_background_session(for_queue=True) as session, session.begin():
                await clear_deaths(session, claim)
            is_cleared = True
