"""Runs steps of a job that are not part of reading, each in a short transaction with the fence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from siteatlas.aio.fairness import fair_loop
from siteatlas.meters import meters
from siteatlas.processor.job_activity import JobActivity
from siteatlas.processor.stalled_writers import terminate_stalled_writers
from siteatlas.queue.fence import Claim
from siteatlas.queue.leases import report_progress
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import AsyncSession, get_job_session

# Between the progress of reading and that of a job that has ended.
SETTLING_PROGRESS = 0.96
# Less than the driver waits for a statement, so that the server stops it first.
STEP_SECONDS = 50

ResultT = TypeVar("ResultT")
Step = Callable[[AsyncSession], Awaitable[ResultT]]


class FencedSteps:
    """The steps of one job. They raise LeaseLost or JobCancelled like every write of a job."""

    def __init__(self, claim: Claim, activity: JobActivity, *, lease_seconds: float) -> None:
        self.claim = claim
        self.activity = activity
        self._lease_seconds = lease_seconds

    @retry_when_busy(before_retry=terminate_stalled_writers)
    async def run(self, step: Step[ResultT]) -> ResultT:
        """Run a step that writes; the fence is its last statement."""
        await fair_loop().yield_to_interactive()
        with meters.timed_write():
            async with get_job_session(statement_seconds=STEP_SECONDS) as session, session.begin():
                result = await step(session)
                await self.fence(session)
        self.activity.record_event()
        return result

    @retry_when_busy
    async def read(self, step: Step[ResultT]) -> ResultT:
        """Run a step that only reads."""
        await fair_loop().yield_to_interactive()
        async with get_job_session(statement_seconds=STEP_SECONDS) as session, session.begin():
            result = await step(session)
        self.activity.record_event()
        return result

    async def fence(self, session: AsyncSession) -> None:
        """The last statement of a transaction that writes for the job and does not end it."""
        await report_progress(
            session,
            self.claim,
            lease_seconds=self._lease_seconds,
            progress=SETTLING_PROGRESS,
        )
