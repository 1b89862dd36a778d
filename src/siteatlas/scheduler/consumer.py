"""The consumer: claims jobs for its free slots, runs them, and returns those it has to stop.

Any number of processes may run one; the database assigns the jobs.

- **Poll.** Every 1 to 5 s, and at once when a job is submitted here or slots become free: jobs
  whose lease has expired are rescued, then one statement claims jobs for the free slots.
- **Run.** Each claimed job is a task (`_run_in_slot`). While it only waits for its site, it leaves
  its slot to others (`slots`). A job whose worker died twice runs alone (`slots.Alone`).
- **Lease.** A heartbeat renews the leases of all jobs in one statement. A job that was lost,
  cancelled or made no progress is stopped; one whose lease could not be renewed in time stops
  itself. The fence refuses whatever it still writes.
- **End.** A task that is stopped returns its job to the queue (`_write_final_status`).

`sitemap_scheduler` is the clock around it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from siteatlas import __version__
from siteatlas.aio import interactive_job
from siteatlas.errors import (
    AddressError,
    DatabaseError,
    DatabaseUnavailable,
    ScanStalled,
    SiteatlasError,
)
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.net.address import parse_site
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
from siteatlas.queue.claims import DueWork, claim, claim_alone, find_due_work, has_due_jobs
from siteatlas.queue.completion import queue_follow_up_if_unpublished
from siteatlas.queue.fence import (
    FINAL_STATUSES,
    HEARTBEATS_PER_LEASE,
    REPORT_SECONDS,
    UNPUBLISHED,
    Claim,
    WorkerReport,
    heartbeat,
    keep_addresses,
    report_worker,
    sign_off_worker,
)
from siteatlas.queue.rescues import forgive_rescues, release_orphans, rescue
from siteatlas.scheduler.outages import DatabaseUptime, ResilientLoop, TickTimes, run_until
from siteatlas.scheduler.slots import (
    GRACE_SECONDS,
    STOP_SECONDS,
    Alone,
    Capacity,
    ConcurrencyLimit,
    RunningJob,
    Slots,
    StopReason,
)
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID, SYSTEM_USER_ID, Job, JobStatus
from siteatlas.storage.session import AsyncSession, get_background_session, retry_when_busy

log = get_logger("scheduler")
MIN_POLL_SECONDS = 1.0
MAX_POLL_SECONDS = 5.0
SHARED_POLL_SECONDS = 0.1
STALLED_SECONDS = 300.0
SNOOZE_SECONDS = 60.0
RETRY_SECONDS = 60.0
LOCKED_SECONDS = 5.0


class Consumer:
    """One per process. `run` works until it is stopped; `run_once` processes the jobs that are
    queued now.

    `claimed` counts the jobs claimed since it was created.
    """

    def __init__(
        self, settings: Settings, policy: EgressPolicy, ticks: TickTimes | None = None
    ) -> None:
        self.worker_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.claimed = 0
        self._settings = settings
        self._policy = policy
        self._ticks = ticks or TickTimes()
        self._lease_seconds = settings.lease_seconds
        self._processor = Processor(settings, policy)
        self._slots = Slots(settings.concurrency, self._poll_for_free_slots)
        self._concurrency = ConcurrencyLimit(settings.concurrency, self._lease_seconds)
        self._alone = Alone(self._slots, self.wake)
        self._recounts = Recounts()
        self._rescuer = Rescuer(self._recounts)
        self._database_uptime = DatabaseUptime(self._lease_seconds)
        self._group: asyncio.TaskGroup | None = None
        self._claim_lock = asyncio.Lock()
        self._stopping = False
        self._max_per_site: int | None = self._slots.max_per_site
        self._may_have_orphans = False
        self._lost: dict[Claim, float] = {}
        self._poll_requested = asyncio.Event()
        self._shared_poll: asyncio.TimerHandle | None = None
        self._pause = MIN_POLL_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then release the jobs that could not be finished."""
        log.info("worker_started", worker_id=self.worker_id, slots=self._slots.size)
        if self._lease_seconds < (advised := 10.0):
            log.warning("lease_too_short", seconds=self._lease_seconds, advised=advised)
        async with asyncio.TaskGroup() as group:
            self._group = group
            loops = [
                group.create_task(loop())
                for loop in (self._poll_loop, self._heartbeat_loop, self._watch_loop)
            ]
            await run_until(stop, loops)
            await self.stop_claiming()
            loops[0].cancel()
            if not await self._slots.wait_idle(GRACE_SECONDS):
                for job in self._slots.jobs():
                    job.stop(StopReason.SHUTDOWN)
                await self._slots.wait_idle(STOP_SECONDS)
            await self._recounts.finish(2.0)
            for loop in loops:
                loop.cancel()
        with suppress(DatabaseError, TimeoutError):
            async with asyncio.timeout(2.0):
                await self._sign_off()
        log.info("worker_stopped", worker_id=self.worker_id)

    async def run_once(self, limit: int) -> dict[str, str]:
        """Claim up to `limit` jobs and run them to their end. Return the outcomes by job UUID."""
        # A single run takes all jobs of a site. One that is left for later could be missed.
        self._max_per_site = None
        jobs: list[RunningJob] = []
        async with asyncio.TaskGroup() as group:
            self._group = group
            loops = [group.create_task(loop()) for loop in (self._heartbeat_loop, self._watch_loop)]
            while len(jobs) < limit and (started := await self._claim_and_start(limit - len(jobs))):
                jobs += started
                await self._slots.wait_idle()
            await self._recounts.finish()
            for loop in loops:
                loop.cancel()
        await self._sign_off()
        return {str(job.claim.job_id): job.outcome.value if job.outcome else "lost" for job in jobs}

    async def claim_jobs(self, limit: int) -> int:
        """Rescue expired jobs, claim up to `limit` for the free slots and start them.

        Return the number started.
        """
        return len(await self._claim_and_start(limit))

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

    # Poll

    def wake(self) -> None:
        """Poll now: a job was just queued."""
        self._poll_requested.set()

    def _poll_for_free_slots(self) -> None:
        """Poll because slots are free; if they are few, after waiting a moment for more.

        A claim costs as much as a third of a small job, however few jobs it takes.
        """
        if not self._slots.few_are_free:
            self.wake()
        elif self._shared_poll is None:
            loop = asyncio.get_running_loop()
            self._shared_poll = loop.call_later(SHARED_POLL_SECONDS, self.wake)

    async def _poll_loop(self) -> None:
        resilient_loop = ResilientLoop("poll")
        while True:
            taken = 0
            self._begin_poll()
            async with resilient_loop.iteration():
                taken = await self.claim_jobs(self._settings.claim_limit or self._slots.free)
            meters.record_poll()
            await self._wait_for_poll(found_jobs=taken > 0)

    def _begin_poll(self) -> None:
        """Note that a poll begins: it serves all earlier reasons to poll."""
        self._poll_requested.clear()
        if self._shared_poll is not None:
            self._shared_poll.cancel()
            self._shared_poll = None

    async def _wait_for_poll(self, *, found_jobs: bool) -> None:
        """Wait for the next poll; the interval grows while polls find nothing."""
        longer = min(self._pause * 1.5, MAX_POLL_SECONDS)
        self._pause = MIN_POLL_SECONDS if found_jobs else longer
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._poll_requested.wait()
                self._pause = MIN_POLL_SECONDS
        await asyncio.sleep(0.05)

    # Claim

    async def _claim_and_start(self, limit: int) -> list[RunningJob]:
        # One at a time: the poll, the tick and run_once would otherwise claim for the same slots.
        async with self._claim_lock:
            if self._stopping or self._alone.is_active:
                return []
            await self._snooze_for_others()
            claims, rescued = await self._rescue_and_claim(limit)
            self._database_uptime.record_response()
            meters.claims += len(claims)
            self.claimed += len(claims)
            jobs = [self._start_job(claim) for claim in claims]
        if rescued:
            # A frozen worker may still hold locks on the rows of its job (decision 0004).
            await terminate_stalled_writers(partial(get_background_session, for_queue=True))
        return jobs

    async def _snooze_for_others(self) -> None:
        """Snooze the jobs held longest if no more can wait and others are due (decision 0008)."""
        if not (jobs := self._slots.jobs_to_snooze()):
            return
        async with get_background_session(for_queue=True) as session, session.begin():
            are_due = await has_due_jobs(
                session,
                self.worker_id,
                users_at_limit=self._slots.users_at_limit(),
                sites_at_limit=self._slots.sites_at_limit(),
            )
        for job in jobs if are_due else ():
            job.stop(StopReason.SNOOZED)

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
            async with (
                get_background_session(durable=False, for_queue=True) as session,
                session.begin(),
            ):
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
        async with (
            meters.timed_claim(),
            get_background_session(for_queue=True) as session,
            session.begin(),
        ):
            work = await find_due_work(session, ignored=self._rescuer.ignored)
            if skip_if_expired and work.expired:
                return work, []
            capacity = self._slots.capacity(
                min(limit, self._concurrency.max_jobs - self._slots.running)
            )
            claims: list[Claim] = []
            if capacity.max_jobs > 0 and work.jobs:
                claims = await self._claim_jobs_or_one_alone(session, capacity, alone=work.alone)
            if self._slots.note_claimed(capacity, claims):
                self.wake()
            return work, claims

    async def _claim_jobs_or_one_alone(
        self, session: AsyncSession, capacity: Capacity, *, alone: bool
    ) -> list[Claim]:
        paused = self._alone.is_paused
        if alone and not paused and (one := await self._claim_alone(session)):
            return [one]
        claims = await claim(
            session,
            self.worker_id,
            capacity.max_jobs,
            self._lease_seconds,
            background=capacity.background,
            users_at_limit=capacity.users_at_limit,
            sites_at_limit=capacity.sites_at_limit if self._max_per_site else (),
            max_per_site=self._max_per_site,
        )
        if claims:
            self._alone.give_way()
        elif alone and paused and not self._slots.jobs():
            one = await self._claim_alone(session)
            return [one] if one else []
        return claims

    async def _claim_alone(self, session: AsyncSession) -> Claim | None:
        return await claim_alone(session, self.worker_id, self._lease_seconds)

    # Run

    def _start_job(self, claim: Claim) -> RunningJob:
        assert self._group is not None
        log.info("job_claimed", job_id=str(claim.job_id), domain=claim.domain, fence=claim.fence)
        # Our own users and the hosts of the operator have no limit.
        user = None if claim.created_by in {LOCAL_USER_ID, SYSTEM_USER_ID} else claim.created_by
        site = None if claim.site is None or self._is_own(claim) else claim.site
        job = RunningJob(claim, site=site, user=user)
        if claim.alone:
            self._alone.add(job)
        else:
            self._slots.add(job)
        job.task = self._group.create_task(self._run_in_slot(job))
        return job

    def _is_own(self, claim: Claim) -> bool:
        try:
            return self._policy.is_own(parse_site(claim.base_url or ""))
        except AddressError:
            return True

    async def _run_in_slot(self, job: RunningJob) -> None:
        status: JobStatus | None = None
        try:
            await self._alone.stop_others(job)
            await self._slots.enter(job)
            with self._slots.left_while_waiting(job), interactive_job(job.is_interactive):
                status = await self._processor.run(job.claim, job.activity)
        except (asyncio.CancelledError, TimeoutError):
            status = await self._record_stop(job)
        except SiteatlasError as error:
            log.warning("job_end_not_recorded", job_id=str(job.claim.job_id), error=error.code)
        except Exception:
            # The error boundary of one job: its end could not be written, the others continue.
            log.exception("job_end_not_recorded", job_id=str(job.claim.job_id))
        finally:
            self._on_job_end(job, status)

    async def _record_stop(self, job: RunningJob) -> JobStatus | None:
        if job.stop_reason is StopReason.LEASE_LOST:
            log.warning("lease_lost", job_id=str(job.claim.job_id), fence=job.claim.fence)
            meters.lease_losses += 1
            return None
        try:
            async with asyncio.timeout(5.0):
                return await _write_final_status(job)
        except (SiteatlasError, TimeoutError):
            return None
        except Exception:
            # It would end the whole group: the loops of this process and all its jobs.
            log.exception("job_end_not_recorded", job_id=str(job.claim.job_id))
            return None

    def _on_job_end(self, job: RunningJob, status: JobStatus | None) -> None:
        self._may_have_orphans |= status is None
        job.outcome = status
        if status is not None:
            self._concurrency.increase()
        else:
            # The rescue of a job that this live process lost does not count as a death. It can be
            # rescued only after the lease has expired.
            self._lost[job.claim] = time.monotonic() + 2 * self._lease_seconds
        if job.lease_lost:
            self._concurrency.reduce(self._slots.running)
        if status in UNPUBLISHED:
            self._recounts.start(job.claim.id)
        self._slots.remove(job)
        self._alone.end(job)
        self._poll_for_free_slots()

    # Lease

    async def _heartbeat_loop(self) -> None:
        resilient_loop = ResilientLoop("heartbeat")
        while True:
            async with resilient_loop.iteration():
                await self.heartbeat()
            meters.record_heartbeat()
            await asyncio.sleep(min(self._lease_seconds / HEARTBEATS_PER_LEASE, REPORT_SECONDS))

    async def _watch_loop(self) -> None:
        """Stop jobs whose lease was not renewed in time: another worker may hold them already.

        Apart from the heartbeat, which may itself be waiting for the database.
        """
        while True:
            await asyncio.sleep(self._lease_seconds / 16)
            for job in self._slots.jobs():
                if time.monotonic() - job.renewed_at > self._lease_seconds * 0.75:
                    job.stop(StopReason.LEASE_LOST)

    async def heartbeat(self) -> None:
        """Renew every lease in one statement; stop the jobs that were lost or cancelled."""
        started = time.monotonic()
        alive = [job for job in self._slots.jobs() if not self._stop_if_stalled(job)]
        self._lost = {one: until for one, until in self._lost.items() if until > started}
        async with (
            get_background_session(durable=False, for_queue=True) as session,
            session.begin(),
        ):
            await report_worker(session, self._worker_report())
            await forgive_rescues(session, self._lost)
            if addresses := {job.claim.address for job in alive if job.claim.address}:
                await keep_addresses(session, self.worker_id, addresses, self._lease_seconds)
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

    def _stop_if_stalled(self, job: RunningJob) -> bool:
        """Stop a job that made no progress for long; one without a slot may wait."""
        if self._slots.is_waiting(job) or job.activity.idle_seconds() < STALLED_SECONDS:
            return False
        job.stop(StopReason.STALLED)
        return True

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

    async def _sign_off(self) -> None:
        async with get_background_session(for_queue=True) as session, session.begin():
            await sign_off_worker(session, self._worker_report())


async def _write_final_status(job: RunningJob) -> JobStatus | None:
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
    snoozed = job.stop_reason is StopReason.SNOOZED
    status = await return_to_queue(
        job.claim,
        pause_seconds=SNOOZE_SECONDS if snoozed else 0,
        reason="displaced" if snoozed else "released",
    )
    log.info("job_released", job_id=str(job.claim.job_id), domain=job.claim.domain)
    return status


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
            async with get_background_session(for_queue=True) as session, session.begin():
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
        async with get_background_session(for_queue=True) as session, session.begin():
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
