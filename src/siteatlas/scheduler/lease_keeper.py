"""Keeps the leases of the jobs that a process holds, and stops those that it may not work on.

The heartbeat renews all leases in one statement and reports the worker; what a lost lease means for
the job is decided by the worker that rescues it (`queue.claims`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from siteatlas.meters import meters
from siteatlas.queue.fence import Claim
from siteatlas.queue.leases import HEARTBEATS_PER_LEASE, forgive_rescues, heartbeat
from siteatlas.queue.workers import REPORT_SECONDS, WorkerReport, report_worker
from siteatlas.scheduler.outages import DatabaseUptime, ResilientLoop
from siteatlas.scheduler.slots import RunningJob, Slots, StopReason
from siteatlas.storage.session import get_queue_session

TRUST_CHECKS_PER_LEASE = 16
TRUSTED_SHARE_OF_LEASE = 0.75
MAX_SILENCE_SECONDS = 300.0


class LeaseKeeper:
    """One per process. `report` is written to the registry of workers with each heartbeat."""

    def __init__(
        self,
        slots: Slots,
        lease_seconds: float,
        database_uptime: DatabaseUptime,
        report: Callable[[], WorkerReport],
    ) -> None:
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._database_uptime = database_uptime
        self._report = report
        self._lost: dict[Claim, float] = {}

    def record_loss(self, claim: Claim) -> None:
        """Remember a job that this live process lost: its rescue does not count as a death."""
        # It can be rescued only after the lease has expired.
        self._lost[claim] = time.monotonic() + 2 * self._lease_seconds

    async def heartbeat_loop(self) -> None:
        """Renew the leases several times per lease, until cancelled."""
        resilient_loop = ResilientLoop("heartbeat")
        while True:
            async with resilient_loop.iteration():
                await self.heartbeat()
            meters.record_heartbeat()
            await asyncio.sleep(min(self._lease_seconds / HEARTBEATS_PER_LEASE, REPORT_SECONDS))

    async def watch_loop(self) -> None:
        """Stop jobs whose lease was not renewed in time, until cancelled.

        Apart from the heartbeat, which may itself be waiting for the database.
        """
        while True:
            await asyncio.sleep(self._lease_seconds / TRUST_CHECKS_PER_LEASE)
            self._stop_untrusted()

    async def heartbeat(self) -> None:
        """Renew every lease in one statement; stop the jobs that were lost or cancelled."""
        started = time.monotonic()
        alive = [job for job in self._slots.jobs() if not self._is_stalled(job)]
        self._lost = {one: until for one, until in self._lost.items() if until > started}
        async with get_queue_session(durable=False) as session, session.begin():
            await report_worker(session, self._report())
            await forgive_rescues(session, self._lost)
            # Last: what is locked before another statement may stay locked if we freeze there.
            kept, cancelled = await heartbeat(
                session, [job.claim for job in alive], self._lease_seconds
            )
        self._database_uptime.record_response()
        for job in alive:
            if job.claim.id in cancelled:
                job.stop(StopReason.CANCELLED)
            elif job.claim.id in kept:
                job.renewed_at = started
            elif not job.activity.ending:
                job.stop(StopReason.LEASE_LOST)

    def _is_stalled(self, job: RunningJob) -> bool:
        """Stop a job that made no progress for long; a parked one may wait."""
        if self._slots.is_parked(job) or job.activity.idle_seconds() < MAX_SILENCE_SECONDS:
            return False
        job.stop(StopReason.STALLED)
        return True

    def _stop_untrusted(self) -> None:
        """A lease that was not renewed in time may already belong to another worker."""
        trusted = self._lease_seconds * TRUSTED_SHARE_OF_LEASE
        for job in self._slots.jobs():
            if time.monotonic() - job.renewed_at > trusted:
                job.stop(StopReason.LEASE_LOST)
