"""The consumer: claims jobs for free slots, runs them, and returns those it has to stop.

The database assigns the jobs; any number of consumers may run. `sitemap_scheduler` is the clock.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from siteatlas import __version__
from siteatlas.aio import interactive_job
from siteatlas.errors import (
    DatabaseError,
    DatabaseUnavailable,
    ScanStalled,
    SiteatlasError,
)
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.net.client import observe_waits
from siteatlas.net.egress import EgressPolicy
from siteatlas.process import boot_id
from siteatlas.processor.processing import Processor, Recounts
from siteatlas.processor.publication import (
    announce_failed_job,
    end_scan_with_job,
    record_cancellation,
    record_failure,
    return_to_queue,
)
from siteatlas.processor.steps import terminate_stalled_writers
from siteatlas.queue.claims import (
    HEARTBEATS_PER_LEASE,
    DueWork,
    claim,
    claim_suspect,
    find_due_work,
    forgive_rescues,
    has_due_jobs,
    heartbeat,
    put_back,
    release_orphans,
    rescue,
)
from siteatlas.queue.completion import queue_follow_up_if_unpublished
from siteatlas.queue.fence import (
    FINAL_STATUSES,
    REPORT_SECONDS,
    UNPUBLISHED,
    Claim,
    WorkerReport,
    report_worker,
    sign_off_worker,
)
from siteatlas.scheduler.outages import DatabaseUptime, ResilientLoop, TickTimes, run_until
from siteatlas.scheduler.slots import (
    GRACE_SECONDS,
    STOP_SECONDS,
    Capacity,
    ConcurrencyLimit,
    Isolation,
    Parking,
    RunningJob,
    Slots,
    StopReason,
    Surplus,
    slot_shares,
)
from siteatlas.settings import Settings
from siteatlas.storage.models import Job, JobStatus
from siteatlas.storage.session import AsyncSession, get_queue_session, retry_when_busy

log = get_logger("scheduler")
RETRY_SECONDS = 60.0
LOCKED_SECONDS = 5.0
MIN_POLL_SECONDS = 1.0
SHARED_POLL_SECONDS = 0.1


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
        if self._lease_seconds < (advised := 10.0):
            log.warning("lease_too_short", seconds=self._lease_seconds, advised=advised)
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
            await self._recounts.finish(2.0)
            for loop in loops:
                loop.cancel()
        with suppress(DatabaseError, TimeoutError):
            async with (
                asyncio.timeout(2.0),
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
        return {str(job.claim.job_id): job.outcome.value if job.outcome else "lost" for job in jobs}

    async def claim_jobs(self, limit: int) -> int:
        """Rescue expired jobs, claim up to `limit` for the free slots and start them.

        Return the number started.
        """
        return len(await self._claim_and_start(limit))

    async def _claim_and_start(self, limit: int) -> list[RunningJob]:
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
            # A frozen worker may still hold locks on the rows of its job (decision 0004).
            await terminate_stalled_writers(get_queue_session)
        return jobs

    async def drain(self) -> None:
        """Claim nothing from now on, and wait for the end of the jobs that run."""
        self._stopping = True
        async with self._claim_lock:
            pass
        await self._slots.wait_idle()

    async def stop_claiming(self) -> None:
        """Claim nothing from now on; a claim in progress is completed first.

        Cancelling it before the response arrives would leave claimed jobs that no worker runs until
        their leases expire.
        """
        self._stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0), self._claim_lock:
                pass

    async def _rescue_and_claim(self, limit: int) -> tuple[list[Claim], int]:
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
            # Before the first heartbeat, it tells whether this machine was restarted.
            async with get_queue_session(durable=False) as session, session.begin():
                await report_worker(session, self._worker_report())
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
        self._polling.poll_for_free_slots(few=self._slots.few_are_free)

    async def _record_stop(self, job: RunningJob) -> JobStatus | None:
        if job.stop_reason is StopReason.LEASE_LOST:
            log.warning("lease_lost", job_id=str(job.claim.job_id), fence=job.claim.fence)
            meters.lease_losses += 1
            return None
        try:
            async with asyncio.timeout(5.0):
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
            boot_id=boot_id(),
            pid=os.getpid(),
            version=__version__,
            slots=self._slots.size,
            running=self._slots.running,
            last_tick_at=self._ticks.last_at,
            next_tick_at=self._ticks.next_at,
        )

    async def _drain(self) -> None:
        if await self._slots.wait_idle(GRACE_SECONDS):
            return
        for job in self._slots.jobs():
            job.stop(StopReason.SHUTDOWN)
        await self._slots.wait_idle(STOP_SECONDS)


def _log_fields(job: Job) -> dict[str, Any]:
    return {
        "job_id": str(job.job_id),
        "domain": (job.result_data or {}).get("domain"),
        "status": str(job.status),
        "rescues": job.rescues,
        "error_code": job.error_code,
    }


def _exc_info(error: Exception) -> Exception | None:
    return None if isinstance(error, SiteatlasError) else error


class Polling:
    """The time of the next poll of a worker.

    Without a reason to poll earlier, the interval grows while polls find nothing.
    """

    def __init__(self) -> None:
        self._due = asyncio.Event()
        self._shared: asyncio.TimerHandle | None = None
        self._pause = MIN_POLL_SECONDS
        self._jobs_expected = False

    def expect_jobs(self) -> None:
        """Note that jobs will soon be due: the interval does not grow before the next poll."""
        self._jobs_expected = True

    def poll_now(self) -> None:
        """Poll as soon as possible."""
        self._due.set()

    def poll_for_free_slots(self, *, few: bool) -> None:
        """Poll because slots are free; if they are few, after waiting a moment for more.

        A claim costs as much as a third of a small job, however few jobs it takes.
        """
        if not few:
            self.poll_now()
        elif self._shared is None:
            loop = asyncio.get_running_loop()
            self._shared = loop.call_later(SHARED_POLL_SECONDS, self._end_sharing)

    def begin_poll(self) -> None:
        """Note that a poll begins: it serves all earlier reasons to poll."""
        self._due.clear()
        self._jobs_expected = False
        if self._shared is not None:
            self._shared.cancel()
            self._shared = None

    async def wait(self, *, found_jobs: bool) -> None:
        """Wait for the next poll; `found_jobs` tells whether the last one claimed any."""
        longer = min(self._pause * 1.5, 5.0)
        self._pause = MIN_POLL_SECONDS if found_jobs or self._jobs_expected else longer
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._due.wait()
                self._pause = MIN_POLL_SECONDS
        await asyncio.sleep(0.05)

    def _end_sharing(self) -> None:
        self._shared = None
        self.poll_now()


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
            await asyncio.sleep(self._lease_seconds / 16)
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
        if self._slots.is_parked(job) or job.activity.idle_seconds() < 300.0:
            return False
        job.stop(StopReason.STALLED)
        return True

    def _stop_untrusted(self) -> None:
        """A lease that was not renewed in time may already belong to another worker."""
        trusted = self._lease_seconds * 0.75
        for job in self._slots.jobs():
            if time.monotonic() - job.renewed_at > trusted:
                job.stop(StopReason.LEASE_LOST)


class Rescuer:
    """One per process; remembers which jobs could not be rescued."""

    def __init__(self, recounts: Recounts) -> None:
        self._recounts = recounts
        self._retry_at: dict[int, float] = {}

    @property
    def ignored(self) -> list[int]:
        """The jobs that failed a short while ago."""
        now = time.monotonic()
        self._retry_at = {job: at for job, at in self._retry_at.items() if at > now}
        return list(self._retry_at)

    async def rescue(self, expired: Collection[int], *, count_deaths: bool) -> int:
        """Rescue these jobs if their leases are still expired. Return how many were rescued.

        All in one transaction, and one by one if that fails. A job whose domain is locked or whose
        rescue fails is ignored for a while.
        """
        try:
            rescued = await self._rescue(expired, count_deaths=count_deaths)
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - each is tried and logged on its own
            log.warning(
                "rescue_retried_individually", jobs=len(expired), error=_rescue_error_code(error)
            )
            rescued = await self._rescue_one_by_one(expired, count_deaths=count_deaths)
        self._ignore(set(expired) - rescued, LOCKED_SECONDS)
        return len(rescued)

    async def release_orphans(self, worker_id: str, running: Collection[int]) -> bool:
        """Release the jobs that this process holds without running them; False if that failed."""
        try:
            async with get_queue_session() as session, session.begin():
                jobs = await release_orphans(session, worker_id, running)
                ended = await _end_scans(session, jobs)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            log.warning(
                "release_orphans_failed", error=_rescue_error_code(error), exc_info=_exc_info(error)
            )
            return False
        self._log_and_recount(ended)
        return True

    async def _rescue_one_by_one(self, expired: Collection[int], *, count_deaths: bool) -> set[int]:
        """Rescue expired jobs in one transaction each, for a limited time. Return their ids."""
        rescued: set[int] = set()
        # Each of several jobs may wait for a lock; new jobs must not wait for all of them.
        until = time.monotonic() + 5.0
        for job in expired:
            if time.monotonic() >= until:
                break
            try:
                rescued |= await self._rescue([job], count_deaths=count_deaths)
            except DatabaseUnavailable:
                raise
            except Exception as error:
                self._ignore([job], RETRY_SECONDS)
                log.warning(
                    "rescue_failed",
                    job=job,
                    error=_rescue_error_code(error),
                    exc_info=_exc_info(error),
                )
        return rescued

    async def _rescue(self, expired: Collection[int], *, count_deaths: bool) -> set[int]:
        async with get_queue_session() as session, session.begin():
            jobs = await rescue(session, count_deaths=count_deaths, only=expired)
            ended = await _end_scans(session, jobs)
        meters.rescues += len(ended)
        self._log_and_recount(ended)
        return {job.id for job in ended}

    def _log_and_recount(self, returned: list[_ReturnedJob]) -> None:
        for job in returned:
            log.warning("job_rescued", **job.log_fields)
            if job.status in FINAL_STATUSES:
                meters.jobs_ended[job.status] += 1
        self._recounts.start(*(job.id for job in returned if job.status in UNPUBLISHED))

    def _ignore(self, jobs: Collection[int], seconds: float) -> None:
        until = time.monotonic() + seconds
        for job in jobs:
            self._retry_at[job] = max(until, self._retry_at.get(job, 0.0))


@dataclass(frozen=True, slots=True)
class _ReturnedJob:
    """A job as it was when it was rescued; it may have been claimed again since."""

    id: int
    status: JobStatus
    log_fields: dict[str, Any]


async def displace_parked_jobs(slots: Slots) -> None:
    """Stop the jobs parked longest if no more can be parked and others are due (decision 0008)."""
    jobs = slots.jobs_to_displace()
    if not jobs:
        return
    async with get_queue_session() as session, session.begin():
        if not await has_due_jobs(session, users_at_limit=slots.users_at_limit()):
            return
    for job in jobs:
        job.stop(StopReason.DISPLACED)


async def write_final_status(job: RunningJob) -> JobStatus | None:
    """Record the end of the attempt by the reason it was stopped for. Return the new status."""
    if job.stop_reason is StopReason.CANCELLED:
        await record_cancellation(job.claim)
        meters.jobs_ended[JobStatus.CANCELLED.value] += 1
        return JobStatus.CANCELLED
    if job.stop_reason is StopReason.STALLED:
        error = ScanStalled()
        log.warning("job_stalled", job_id=str(job.claim.job_id), domain=job.claim.domain)
        return await record_failure(
            job.claim, code=error.code, message=error.message, transient=True
        )
    displaced = job.stop_reason is StopReason.DISPLACED
    status = await return_to_queue(
        job.claim,
        pause_seconds=60.0 if displaced else 0,
        reason="displaced" if displaced else "released",
    )
    log.info("job_released", job_id=str(job.claim.job_id), domain=job.claim.domain)
    return status


async def _end_scans(session: AsyncSession, jobs: Iterable[Job]) -> list[_ReturnedJob]:
    ended = list(jobs)
    for job in ended:
        await end_scan_with_job(session, job.id, job.domain_id, job.status, job.error_code)
        await queue_follow_up_if_unpublished(session, job)
    # Numbers of the feed come last, since everybody who publishes waits for them.
    for job in ended:
        await announce_failed_job(session, job.id, job.domain_id, job.status, job.error_code)
    return [_ReturnedJob(job.id, job.status, _log_fields(job)) for job in ended]


def _rescue_error_code(error: Exception) -> str:
    return error.code if isinstance(error, SiteatlasError) else SiteatlasError.code
