"""The consumer: claims jobs for free slots, runs them, and returns those it has to stop.

The database assigns the jobs; any number of consumers may run. `sitemap_scheduler` is the clock,
`lease_keeper` renews the leases.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from contextlib import suppress

from siteatlas import __version__
from siteatlas.aio.priority_semaphore import interactive_job
from siteatlas.errors import DatabaseError, SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.waiting import observe_waits
from siteatlas.processor.processing import Processor
from siteatlas.processor.recount import Recounts
from siteatlas.processor.stalled_writers import terminate_stalled_writers
from siteatlas.queue.claims import DueWork, claim, claim_suspect, find_due_work
from siteatlas.queue.fence import Claim
from siteatlas.queue.put_back import put_back
from siteatlas.queue.statuses import UNPUBLISHED
from siteatlas.queue.workers import WorkerReport, sign_off_worker
from siteatlas.scheduler.clocks import TickTimes
from siteatlas.scheduler.isolation import GRACE_SECONDS, STOP_SECONDS, Isolation
from siteatlas.scheduler.lease_keeper import LeaseKeeper
from siteatlas.scheduler.liveness import run_until
from siteatlas.scheduler.outages import DatabaseUptime, ResilientLoop
from siteatlas.scheduler.parking import Parking
from siteatlas.scheduler.polling import Polling
from siteatlas.scheduler.rescuer import Rescuer
from siteatlas.scheduler.slots import (
    Capacity,
    ConcurrencyLimit,
    RunningJob,
    Slots,
    StopReason,
    slot_shares,
)
from siteatlas.scheduler.stopped_jobs import displace_parked_jobs, write_final_status
from siteatlas.scheduler.surplus import Surplus
from siteatlas.settings import Settings
from siteatlas.storage.models import JobStatus
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import AsyncSession, get_queue_session

log = get_logger("scheduler")

LAST_CLAIM_SECONDS = 2.0
FINAL_WRITE_SECONDS = 5.0
FINAL_RECOUNT_SECONDS = 2.0
SIGN_OFF_SECONDS = 2.0
SHORT_LEASE_SECONDS = 10.0
LOST = "lost"


class Consumer:
    """One per process. `run` works until it is stopped; `run_once` processes the jobs that are
    queued now.

    `claimed` counts the jobs claimed since it was created.
    """

    def __init__(
        self, settings: Settings, policy: EgressPolicy, ticks: TickTimes | None = None
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._ticks = ticks or TickTimes()
        self._lease_seconds = settings.lease_seconds
        self._processor = Processor(settings, policy)
        self._polling = Polling()
        self._slots = Slots(settings.concurrency, self._poll_for_free_slots)
        self._concurrency = ConcurrencyLimit(settings.concurrency, self._lease_seconds)
        self._isolation = Isolation(self._slots, self._polling.poll_now)
        self._surplus: Surplus | None = Surplus(self._slots, policy)
        self._recounts = Recounts()
        self._rescuer = Rescuer(self._recounts)
        self._claim_lock = asyncio.Lock()
        self._stopping = False
        self._may_have_orphans = False
        self._database_uptime = DatabaseUptime(self._lease_seconds)
        self._leases = LeaseKeeper(
            self._slots, self._lease_seconds, self._database_uptime, self._worker_report
        )
        self._group: asyncio.TaskGroup | None = None
        self.worker_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.claimed = 0

    def wake(self) -> None:
        """Poll now: a job was just queued."""
        self._polling.poll_now()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then release the jobs that could not be finished."""
        log.info("worker_started", worker_id=self.worker_id, slots=self._slots.size)
        if self._lease_seconds < SHORT_LEASE_SECONDS:
            log.warning("lease_too_short", seconds=self._lease_seconds, advised=SHORT_LEASE_SECONDS)
        async with asyncio.TaskGroup() as group:
            self._group = group
            loops = [
                group.create_task(loop())
                for loop in (
                    self._poll_loop,
                    self._leases.heartbeat_loop,
                    self._leases.watch_loop,
                )
            ]
            await run_until(stop, loops)
            await self.stop_claiming()
            loops[0].cancel()
            await self._drain()
            await self._recounts.finish(FINAL_RECOUNT_SECONDS)
            for loop in loops:
                loop.cancel()
        with suppress(DatabaseError, TimeoutError):
            async with (
                asyncio.timeout(SIGN_OFF_SECONDS),
                get_queue_session() as session,
                session.begin(),
            ):
                await sign_off_worker(session, self._worker_report())
        log.info("worker_stopped", worker_id=self.worker_id)

    async def run_once(self, limit: int) -> dict[str, str]:
        """Claim up to `limit` jobs and run them to their end. Return the outcomes by job UUID."""
        # A single run finishes all jobs that it claims. A job that is put back could be missed.
        self._surplus = None
        jobs: list[RunningJob] = []
        async with asyncio.TaskGroup() as group:
            self._group = group
            loops = [
                group.create_task(loop())
                for loop in (self._leases.heartbeat_loop, self._leases.watch_loop)
            ]
            while len(jobs) < limit and (started := await self._claim_and_start(limit - len(jobs))):
                jobs += started
                await self._slots.wait_idle()
            await self._recounts.finish()
            for loop in loops:
                loop.cancel()
        async with get_queue_session() as session, session.begin():
            await sign_off_worker(session, self._worker_report())
        return {str(job.claim.job_id): job.outcome.value if job.outcome else LOST for job in jobs}

    async def claim_jobs(self, limit: int) -> int:
        """Rescue expired jobs, claim up to `limit` for the free slots and start them.

        Return the number started.
        """
        return len(await self._claim_and_start(limit))

    async def _claim_and_start(self, limit: int) -> list[RunningJob]:
        """Rescue expired jobs, then claim up to `limit` jobs and start them in this worker."""
        # One at a time: the poll, the tick and run_once would otherwise claim for the same slots.
        async with self._claim_lock:
            # A suspect runs alone, so that its next death can only be its own.
            if self._stopping or self._isolation.is_active:
                return []
            await displace_parked_jobs(self._slots)
            claims, rescued = await self._rescue_and_claim(limit)
            self._database_uptime.record_response()
            meters.claims += len(claims)
            self.claimed += len(claims)
            jobs = [self._start_job(claim) for claim in claims]
        if rescued:
            # A frozen worker may still hold locks on the rows of its job (decision 0024).
            await terminate_stalled_writers(get_queue_session)
        return jobs

    async def stop_claiming(self) -> None:
        """Claim nothing from now on; a claim in progress is completed first.

        Cancelling it before the response arrives would leave claimed jobs that no worker runs until
        their leases expire.
        """
        self._stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CLAIM_SECONDS), self._claim_lock:
                pass

    async def _rescue_and_claim(self, limit: int) -> tuple[list[Claim], int]:
        """Rescue expired jobs, then claim. Return the claims and the number of jobs rescued."""
        may_have_orphans, self._may_have_orphans = self._may_have_orphans, False
        try:
            if may_have_orphans:
                running = [job.claim.id for job in self._slots.jobs()]
                # Jobs whose end was not recorded meanwhile have set it already.
                if not await self._rescuer.release_orphans(self.worker_id, running):
                    self._may_have_orphans = True
            work, claims = await self._claim(limit, skip_if_expired=True)
            if not work.expired:
                return claims, 0
            count_deaths = self._database_uptime.covers_lease
            rescued = await self._rescuer.rescue(work.expired, count_deaths=count_deaths)
            _, claims = await self._claim(limit)
        except BaseException:
            # The response to a claim may have been lost.
            self._may_have_orphans = True
            raise
        return claims, rescued

    @retry_when_busy
    async def _claim(
        self, limit: int, *, skip_if_expired: bool = False
    ) -> tuple[DueWork, list[Claim]]:
        """Find due work and claim jobs for the free slots in one transaction."""
        async with meters.timed_claim(), get_queue_session() as session, session.begin():
            work = await find_due_work(session, ignored=self._rescuer.ignored)
            if skip_if_expired and work.expired:
                return work, []
            return work, await self._claim_for_free_slots(session, limit, work)

    async def _claim_for_free_slots(
        self, session: AsyncSession, limit: int, work: DueWork
    ) -> list[Claim]:
        capacity = self._slots.capacity(
            min(limit, self._concurrency.max_jobs - self._slots.running)
        )
        claims: list[Claim] = []
        if capacity.max_jobs > 0 and work.jobs:
            claims = await self._claim_suspect_or_jobs(session, capacity, suspects=work.suspects)
        self._slots.note_claimed(capacity, len(claims))
        return await self._put_back_surplus(session, capacity, claims)

    async def _put_back_surplus(
        self, session: AsyncSession, capacity: Capacity, claims: list[Claim]
    ) -> list[Claim]:
        """Put back the claimed jobs whose site or user has no slot left. Return the others."""
        pauses = self._surplus.pauses(claims) if self._surplus else {}
        if pauses:
            await put_back(session, pauses)
            log.debug("jobs_put_back", jobs=len(pauses))
            self._polling.expect_jobs()
            # Jobs that may run can be next in the queue.
            if len(claims) >= (capacity.background or capacity.max_jobs):
                self._polling.poll_now()
        return [claim for claim in claims if claim not in pauses]

    async def _claim_suspect_or_jobs(
        self, session: AsyncSession, capacity: Capacity, *, suspects: bool
    ) -> list[Claim]:
        """Claim one suspect, to run alone, or as many other jobs as there is capacity for."""
        suspects_wait = self._isolation.is_paused
        if suspects and not suspects_wait and (suspect := await self._claim_suspect(session)):
            return [suspect]
        claims = await claim(
            session,
            self.worker_id,
            capacity.max_jobs,
            self._lease_seconds,
            background=capacity.background,
            users_at_limit=capacity.users_at_limit,
        )
        if claims:
            self._isolation.end_series()
        elif suspects and suspects_wait and not self._slots.jobs():
            suspect = await self._claim_suspect(session)
            return [suspect] if suspect else []
        return claims

    async def _claim_suspect(self, session: AsyncSession) -> Claim | None:
        return await claim_suspect(session, self.worker_id, self._lease_seconds)

    def _start_job(self, claim: Claim) -> RunningJob:
        assert self._group is not None
        log.info("job_claimed", job_id=str(claim.job_id), domain=claim.domain, fence=claim.fence)
        site, user = slot_shares(claim, self._policy)
        job = RunningJob(claim, site=site, user=user)
        if claim.is_suspect:
            self._isolation.reserve(job)
            self._slots.add_parked(job)
        else:
            self._slots.add(job)
        job.task = self._group.create_task(self._run_in_slot(job))
        return job

    async def _run_in_slot(self, job: RunningJob) -> None:
        """Run a claimed job in its slot to its end; no error escapes to the other jobs."""
        status: JobStatus | None = None
        parking = Parking(self._slots, job)
        try:
            await self._isolation.isolate(job)
            await self._slots.resume(job)
            with observe_waits(parking.waits), interactive_job(job.is_interactive):
                status = await self._processor.run(job.claim, job.activity)
        except (asyncio.CancelledError, TimeoutError):
            status = await self._record_stop(job)
        except SiteatlasError as error:
            log.warning("job_end_not_recorded", job_id=str(job.claim.job_id), error=error.code)
        except Exception:
            # The error boundary of one job: its end could not be written, the others continue.
            log.exception("job_end_not_recorded", job_id=str(job.claim.job_id))
        finally:
            parking.stop()
            self._on_job_end(job, status)

    def _on_job_end(self, job: RunningJob, status: JobStatus | None) -> None:
        """Free the slot of a job, and pass its outcome on to the leases, limits and recounts."""
        self._may_have_orphans |= status is None
        job.outcome = status
        if status is not None:
            self._concurrency.increase()
        else:
            self._leases.record_loss(job.claim)
        if job.lease_lost:
            self._concurrency.reduce(self._slots.running)
        if status in UNPUBLISHED:
            self._recounts.start(job.claim.id)
        self._slots.remove(job)
        self._isolation.end(job)
        self._poll_for_free_slots()

    def _poll_for_free_slots(self) -> None:
        """Schedule a poll for slots that became free."""
        self._polling.poll_for_free_slots(few=self._slots.few_are_free)

    async def _record_stop(self, job: RunningJob) -> JobStatus | None:
        """Record in the queue why a job was stopped, if this worker still holds its claim."""
        if job.stop_reason is StopReason.LEASE_LOST:
            log.warning("lease_lost", job_id=str(job.claim.job_id), fence=job.claim.fence)
            meters.lease_losses += 1
            return None
        try:
            async with asyncio.timeout(FINAL_WRITE_SECONDS):
                return await write_final_status(job)
        except (SiteatlasError, TimeoutError):
            return None
        except Exception:
            # It would end the whole group: the loops of this process and all its jobs.
            log.exception("job_end_not_recorded", job_id=str(job.claim.job_id))
            return None

    async def _poll_loop(self) -> None:
        resilient_loop = ResilientLoop("poll")
        while True:
            taken = 0
            self._polling.begin_poll()
            async with resilient_loop.iteration():
                taken = await self.claim_jobs(self._settings.claim_limit or self._slots.free)
            meters.record_poll()
            await self._polling.wait(found_jobs=taken > 0)

    def _worker_report(self) -> WorkerReport:
        return WorkerReport(
            id=self.worker_id,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            slots=self._slots.size,
            running=self._slots.running,
            last_tick_at=self._ticks.last_at,
            next_tick_at=self._ticks.next_at,
        )

    async def _drain(self) -> None:
        """Let short jobs end, then stop the others; they return to the queue at once."""
        if await self._slots.wait_idle(GRACE_SECONDS):
            return
        for job in self._slots.jobs():
            job.stop(StopReason.SHUTDOWN)
        await self._slots.wait_idle(STOP_SECONDS)
