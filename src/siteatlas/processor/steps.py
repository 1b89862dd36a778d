"""How a running job writes: short transactions with the fence, and the activity of the job.

`BatchWriter` writes the batches of a scan while reading continues, one at a time. `FencedSteps`
runs the steps that follow the reading. When a write meets a lock, both first terminate the COPY
statements of workers that froze or disappeared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from siteatlas.aio import fair_loop
from siteatlas.catalog.scans import record_first_origin
from siteatlas.catalog.url_copy import terminate_stalled_copies
from siteatlas.catalog.write_batch import WriteBatch, flush_batch
from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.processor.documents import OpenedScan
from siteatlas.queue.fence import Claim, report_progress
from siteatlas.scanner.events import RobotsRead, SitemapsSkipped
from siteatlas.storage.session import (
    AsyncSession,
    get_background_session,
    get_job_session,
    retry_when_busy,
)

log = get_logger("processor")

# Less than the driver waits for a statement, so that the server stops it first.
STEP_SECONDS = 50

ResultT = TypeVar("ResultT")
Step = Callable[[AsyncSession], Awaitable[ResultT]]


class JobActivity:
    """Updated by the processor at every event; read by the heartbeat of the worker.

    `ending` is set before the transaction that ends the job: from then on only the fence tells
    whether the job is still ours, for the heartbeat may see it ended before we do. `lease_lost` is
    set when the fence refused a write, `document_committed` with the first finished document of
    this attempt.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.ending = False
        self.lease_lost = False
        self.document_committed = asyncio.Event()

    @contextmanager
    def mark_ending(self) -> Iterator[None]:
        """Mark the job as ending when this block is left, normally or by an error."""
        try:
            yield
        finally:
            self.ending = True

    def record_event(self) -> None:
        self._last = time.monotonic()

    def idle_seconds(self) -> float:
        return time.monotonic() - self._last


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The progress of a scan, as shown by its job."""

    progress: float
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FinishedScan:
    """The last batch of a finished scan, and the reasons why it is partial, if it is.

    `has_unrequested_documents`: some listed documents may not have been requested in any attempt.
    `origin` is the one that answered, `ip` its address, `robots` are the robots.txt files that were
    read. `skipped_sitemaps` is how many children of indexes a filter left out, None without
    a filter.
    """

    batch: WriteBatch
    reasons: list[str]
    has_unrequested_documents: bool
    origin: str | None = None
    ip: str | None = None
    robots: tuple[RobotsRead, ...] = ()
    skipped_sitemaps: SitemapsSkipped | None = None


async def terminate_stalled_writers(
    open_session: Callable[[], AbstractAsyncContextManager[AsyncSession]] = get_background_session,
) -> int:
    """Terminate COPY statements whose client is gone, in a separate transaction; return how many.

    For moments at which there may be one: after a rescue, and when a write met a lock. What goes
    wrong here is only logged, because callers have other work to do.
    """
    try:
        async with open_session() as session, session.begin():
            ended = await terminate_stalled_copies(session)
    except DatabaseError as error:
        log.warning("stalled_copies_not_terminated", reason=error.code)
        return 0
    if ended:
        log.warning("stalled_copies_terminated", count=ended)
    return ended


class BatchWriter:
    """The writer of one scan for one claim; `on_committed` is called with every committed batch."""

    def __init__(
        self,
        claim: Claim,
        scan: OpenedScan,
        *,
        lease_seconds: float,
        on_committed: Callable[[WriteBatch], None],
    ) -> None:
        self._claim = claim
        self._scan = scan
        self._lease_seconds = lease_seconds
        self._on_committed = on_committed
        self._task: asyncio.Task[None] | None = None

    def start(self, batch: WriteBatch, progress_snapshot: ProgressSnapshot) -> None:
        """Start writing a batch; the previous one must have been written."""
        assert self._task is None
        self._task = asyncio.create_task(self._write(batch, progress_snapshot))

    async def wait_written(self) -> None:
        """Wait until no batch is being written; raises the error of a failed write, every time.

        Cancelling the waiter does not cancel the write: a later batch must never be stored without
        the previous one.
        """
        if self._task is not None:
            await asyncio.shield(self._task)
            self._task = None

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @retry_when_busy(before_retry=terminate_stalled_writers)
    async def _write(self, batch: WriteBatch, progress_snapshot: ProgressSnapshot) -> None:
        await fair_loop().yield_to_interactive()
        with meters.timed_write():
            async with get_job_session() as session, session.begin():
                await flush_batch(session, batch, scan_id=self._scan.id)
                if batch.origin is not None:
                    await record_first_origin(session, self._scan.domain_id, batch.origin)
                # Also checks the fence: raises LeaseLost if the claim is no longer held.
                await report_progress(
                    session,
                    self._claim,
                    lease_seconds=self._lease_seconds,
                    progress=progress_snapshot.progress,
                    result_data=progress_snapshot.result,
                    documents_finished=bool(batch.closed),
                    documents_read=batch.has_rows_of_read_documents,
                )
        self._on_committed(batch)


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
        # Between the progress of reading and that of a job that has ended.
        await report_progress(
            session,
            self.claim,
            lease_seconds=self._lease_seconds,
            progress=0.96,
        )
