"""Writes the batches of a scan while reading continues, one at a time, in fenced transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from siteatlas.aio.fairness import fair_loop
from siteatlas.meters import meters
from siteatlas.processor.documents import OpenedScan
from siteatlas.processor.stalled_writers import terminate_stalled_writers
from siteatlas.queue.fence import Claim
from siteatlas.queue.leases import report_progress
from siteatlas.scanner.events import RobotsRead, SitemapsSkipped
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import get_job_session
from siteatlas.storage.statements.domain_results import record_first_origin
from siteatlas.storage.statements.write_batch import WriteBatch, flush_batch


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The progress of a scan, as shown by its job."""

    progress: float
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FinishedScan:
    """The last batch of a finished scan, and the reasons why it is partial, if it is.

    `has_unrequested_documents`: some listed documents may not have been requested in any attempt.
    `origin` is the one that answered, `robots` are the robots.txt files that were read.
    `skipped_sitemaps` is how many children of indexes a filter left out, None without a filter.
    """

    batch: WriteBatch
    reasons: list[str]
    has_unrequested_documents: bool
    origin: str | None = None
    robots: tuple[RobotsRead, ...] = ()
    skipped_sitemaps: SitemapsSkipped | None = None


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
        """Cancel the current write."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @retry_when_busy(before_retry=terminate_stalled_writers)
    async def _write(self, batch: WriteBatch, progress_snapshot: ProgressSnapshot) -> None:
        """Write one batch and the progress of the job in one transaction that checks the fence."""
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
