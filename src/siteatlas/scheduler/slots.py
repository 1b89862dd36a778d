"""The slots of a process: which of its jobs may run, and which waits for a slot.

A job that only waits for its site leaves its slot and keeps its lease; other jobs use the slot. It
enters a slot again before its next request, ahead of jobs that are not claimed yet. Some slots are
reserved for interactive jobs, and no site or user gets all of them. A job whose worker died twice
runs alone.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID

from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger
from siteatlas.net.client import Waits, observe_waits
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.fence import Claim, Priority
from siteatlas.queue.rescues import clear_deaths, mark_alone
from siteatlas.scheduler.outages import ResilientLoop
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import get_background_session, retry_when_busy

log = get_logger("scheduler")

WAITING_PER_SLOT = 8
MIN_STAY_SECONDS = 60.0
MIN_WAIT_SECONDS = 1.0
GRACE_SECONDS = 3.0
STOP_SECONDS = 11.0
# The maximum time that a job runs alone, and that such jobs follow one another.
ALONE_SECONDS = 60.0


class StopReason(Enum):
    """Why a running job is stopped from outside."""

    SHUTDOWN = auto()
    CANCELLED = auto()
    LEASE_LOST = auto()
    STALLED = auto()
    SNOOZED = auto()


@dataclass(slots=True, eq=False)
class RunningJob:
    """A claimed job with its task; `renewed_at` is on the monotonic clock of this process.

    `site` and `user` are those whose slots it uses; None when there is no limit. `outcome` is the
    status that it ended in; None until then, and when it was lost.
    """

    claim: Claim
    activity: JobActivity = field(default_factory=JobActivity)
    renewed_at: float = field(default_factory=time.monotonic)
    task: asyncio.Task[None] | None = None
    stop_reason: StopReason | None = None
    site: str | None = None
    user: UUID | None = None
    since: float = field(default_factory=time.monotonic)
    outcome: JobStatus | None = None

    @property
    def is_interactive(self) -> bool:
        """Whether a user waits for this running job, so that it may use the reserved slots."""
        return self.claim.priority == Priority.INTERACTIVE

    @property
    def lease_lost(self) -> bool:
        """Whether another worker may hold this job: its lease expired, or a write was refused."""
        return self.stop_reason is StopReason.LEASE_LOST or self.activity.lease_lost

    def stop(self, reason: StopReason) -> None:
        """Cancel the task, once; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            if self.task is not None:
                self.task.cancel()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What may be claimed: at most `max_jobs` jobs, none of the users and sites at their limit.

    Jobs that are not interactive are claimed only until the total reaches `background`.
    """

    max_jobs: int
    background: int
    users_at_limit: frozenset[UUID]
    sites_at_limit: frozenset[str]


class Slots:
    """A fixed number of slots for jobs.

    `on_free` is called when a slot becomes free and the last claim may have left jobs unclaimed
    for lack of slots.
    """

    def __init__(self, size: int, on_free: Callable[[], None] = lambda: None) -> None:
        self.size = size
        self.reserved = max(1, size // 8) if size > 1 else 0
        self.max_waiting = size * WAITING_PER_SLOT
        self.max_per_site = max(2, size // 4)
        self.max_per_user = max(1, size - size // 4)
        self._on_free = on_free
        # Not by id: a lost job may be claimed again while its previous task is still shutting down.
        self._running: set[RunningJob] = set()
        self._waiting: set[RunningJob] = set()
        self._entering: dict[asyncio.Future[None], RunningJob] = {}
        self._ran_out_of_slots = True
        self._passed_over: frozenset[UUID | str] = frozenset()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def free(self) -> int:
        """How many more jobs may be claimed; none when too many wait."""
        if len(self._waiting) >= 2 * self.max_waiting:
            return 0
        return self.size - len(self._running)

    @property
    def free_for_background(self) -> int:
        """How many of the free slots jobs that are not interactive may use."""
        if len(self._waiting) >= self.max_waiting:
            return 0
        return max(0, self.size - self.reserved - len(self._running))

    @property
    def few_are_free(self) -> bool:
        """Whether fewer slots are free than one claim should fill."""
        return self.free_for_background < self.size // 8

    @property
    def running(self) -> int:
        """How many slots are in use."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many jobs are held without a slot."""
        return len(self._waiting)

    def capacity(self, limit: int) -> Capacity:
        """What a claim of up to `limit` jobs may take; pass the result on to `note_claimed`."""
        self._ran_out_of_slots = True
        max_jobs = min(limit, self.free)
        return Capacity(
            max_jobs,
            min(max_jobs, self.free_for_background),
            self.users_at_limit(),
            self.sites_at_limit(),
        )

    def note_claimed(self, capacity: Capacity, claims: Sequence[Claim]) -> bool:
        """Record what was claimed: if capacity was left, a free slot needs no claim.

        True if a site got as many jobs as one may: those of others may come after the jobs that
        this claim examined, so the next one should follow at once.
        """
        self._ran_out_of_slots = len(claims) >= capacity.background
        self._passed_over = capacity.users_at_limit | capacity.sites_at_limit
        sites = Counter(claim.site for claim in claims if claim.site is not None)
        return any(jobs >= self.max_per_site for jobs in sites.values())

    def users_at_limit(self) -> frozenset[UUID]:
        """The users who occupy as many slots as one user may."""
        users = Counter(job.user for job in self._running if job.user is not None)
        return frozenset(user for user, jobs in users.items() if jobs >= self.max_per_user)

    def sites_at_limit(self) -> frozenset[str]:
        """The sites that occupy as many slots as one site may."""
        sites = Counter(job.site for job in self._running if job.site is not None)
        return frozenset(site for site, jobs in sites.items() if jobs >= self.max_per_site)

    def add(self, job: RunningJob) -> None:
        """Hold a claimed job: in a slot, or waiting for one if it may not run yet."""
        (self._running if self._may_run(job) else self._waiting).add(job)
        self._idle.clear()

    def add_waiting(self, job: RunningJob) -> None:
        """Hold a job that has to wait for something else first."""
        self._waiting.add(job)
        self._idle.clear()

    def remove(self, job: RunningJob) -> None:
        """Remove a job."""
        self._running.discard(job)
        self._waiting.discard(job)
        if not self._running and not self._waiting:
            self._idle.set()
        self._let_enter()

    def leave(self, job: RunningJob) -> None:
        """Free the slot of a job that only waits."""
        if job in self._running:
            self._running.discard(job)
            self._waiting.add(job)
            self._let_enter()

    async def enter(self, job: RunningJob) -> None:
        """Wait until a job has a slot. These come before jobs not yet claimed."""
        # Repeat if it left again between getting the slot and this task's next step.
        while job in self._waiting:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._entering[ready] = job
            self._let_enter()
            try:
                await ready
            finally:
                self._entering.pop(ready, None)

    @contextmanager
    def left_while_waiting(self, job: RunningJob) -> Iterator[None]:
        """Inside, the job leaves its slot while all its requests wait for a second or more."""
        timer: asyncio.TimerHandle | None = None

        def stop_timer() -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
                timer = None

        def leave_if_idle() -> None:
            if waits.is_idle:
                self.leave(job)

        def on_idle(seconds: float) -> None:
            nonlocal timer
            stop_timer()
            if math.isinf(seconds):
                timer = asyncio.get_running_loop().call_later(MIN_WAIT_SECONDS, leave_if_idle)
            elif seconds >= MIN_WAIT_SECONDS:
                self.leave(job)

        async def resume() -> None:
            stop_timer()
            await self.enter(job)
            job.activity.record_event()

        waits = Waits(on_idle, resume)
        try:
            with observe_waits(waits):
                yield
        finally:
            stop_timer()

    def jobs(self) -> list[RunningJob]:
        """All jobs at this moment."""
        return [*self._running, *self._waiting]

    def is_waiting(self, job: RunningJob) -> bool:
        """Whether the job is held without a slot."""
        return job in self._waiting

    def jobs_to_snooze(self) -> list[RunningJob]:
        """The jobs held longest, to be snoozed for others when no more can wait.

        Each has been held for `MIN_STAY_SECONDS`, so every job makes progress even if there are
        many more than can wait.
        """
        staying = [job for job in self._waiting if job.stop_reason is None]
        if len(staying) < self.max_waiting:
            return []
        latest = time.monotonic() - MIN_STAY_SECONDS
        stayed = [job for job in staying if job.since <= latest]
        stayed.sort(key=lambda job: (-job.claim.priority, job.since))
        return stayed[: self.size]

    async def wait_idle(self, seconds: float | None = None) -> bool:
        """Wait until every job has ended; False on timeout."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _may_run(self, job: RunningJob) -> bool:
        usable = self.size if job.is_interactive else self.size - self.reserved
        return (
            len(self._running) < usable
            and (job.site is None or job.site not in self.sites_at_limit())
            and (job.user is None or job.user not in self.users_at_limit())
        )

    def _let_enter(self) -> None:
        """Give free slots to waiting jobs that are ready: interactive ones first, then by age."""
        ready_jobs = [(ready, job) for ready, job in self._entering.items() if not ready.done()]
        for ready, job in sorted(ready_jobs, key=lambda one: not one[1].is_interactive):
            if self._may_run(job):
                self._waiting.discard(job)
                self._running.add(job)
                # Here, because a heartbeat may come before the next step of the job's task.
                job.activity.record_event()
                ready.set_result(None)
        at_limit = self.users_at_limit() | self.sites_at_limit()
        if self.free and (self._ran_out_of_slots or self._passed_over - at_limit):
            self._on_free()


class ConcurrencyLimit:
    """How many jobs a process may run: halved by a lost lease, one more for each job that ends.

    It is halved at most once per lease. A machine that is too slow for its leases would otherwise
    claim, lose and claim the same jobs without an end.
    """

    def __init__(
        self, size: int, lease_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._size = size
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._halved_at = -lease_seconds
        self.max_jobs = size

    def reduce(self, running: int) -> None:
        """Halve the limit: a lease expired although this process, with `running` jobs, is alive."""
        now = self._clock()
        if now - self._halved_at >= self._lease_seconds:
            self._halved_at = now
            self.max_jobs = max(1, min(self.max_jobs, max(running, 1)) // 2)

    def increase(self) -> None:
        """Raise the limit by one: a job has ended."""
        self.max_jobs = min(self._size, self.max_jobs + 1)


class Alone:
    """Jobs that run alone: after two deaths of its worker, a third must be the fault of this job.

    The process that claims such a job gives its other jobs a moment to end and returns the rest to
    the queue. If the worker dies then, the job fails as poison when it is rescued. If the job
    finishes a document or runs for a minute, its deaths are forgotten and others run beside it.
    Several such jobs run one after another for a minute; then it is the turn of the other jobs for
    as long. `on_end` is called when others may be claimed.
    """

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
