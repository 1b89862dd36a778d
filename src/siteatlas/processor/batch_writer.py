"""Writes the portions of one scan behind its reading, one at a time, in fenced transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from siteatlas.aio.fairness import turns
from siteatlas.meters import meters
from siteatlas.processor.opened_scan import OpenedScan
from siteatlas.processor.stalled_writers import end_stalled_copies
from siteatlas.queue.claims import Claim
from siteatlas.queue.leases import report_progress
from siteatlas.storage.retry import repeat_when_busy
from siteatlas.storage.session import get_job_session
from siteatlas.storage.statements.sitemaps import record_origin
from siteatlas.storage.statements.write_batch import Portion, write_portion


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a scan has come, as its job shows it."""

    progress: float
    result: dict[str, Any]


class PortionWriter:
    """The writer of one scan for one claim; `settled` is told of every committed portion."""

    def __init__(
        self,
        claim: Claim,
        scan: OpenedScan,
        *,
        lease_seconds: float,
        settled: Callable[[Portion], None],
    ) -> None:
        self._claim = claim
        self._scan = scan
        self._lease_seconds = lease_seconds
        self._settled = settled
        self._task: asyncio.Task[None] | None = None

    def start(self, portion: Portion, standing: Standing) -> None:
        """Begin to write a portion; the one before must be written."""
        assert self._task is None
        self._task = asyncio.create_task(
            repeat_when_busy(lambda: self._write(portion, standing), clear_way=end_stalled_copies)
        )

    async def written(self) -> None:
        """Wait until nothing is being written; what went wrong is raised here, every time.

        A cancel of whoever waits leaves the writing alone: a later portion must never be stored
        without the one before it.
        """
        if self._task is not None:
            await asyncio.shield(self._task)
            self._task = None

    async def stop(self) -> None:
        """Break off what is being written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _write(self, portion: Portion, standing: Standing) -> None:
        await turns().people_first()
        with meters.timed_write():
            await self._write_fenced(portion, standing)
        self._settled(portion)

    async def _write_fenced(self, portion: Portion, standing: Standing) -> None:
        async with get_job_session() as session, session.begin():
            await write_portion(session, portion, scan_id=self._scan.id)
            if portion.origin is not None:
                await record_origin(session, self._scan.domain_id, portion.origin)
            await report_progress(
                session,
                self._claim,
                lease_seconds=self._lease_seconds,
                progress=standing.progress,
                result_data=standing.result,
                documents_finished=bool(portion.closed),
                documents_read=portion.has_read_documents,
            )
