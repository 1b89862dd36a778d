"""The jobs of a process: running ones in slots, parked ones, and which comes next.

A job that only waits for its site is parked: it keeps its lease, and other jobs use its slot. Some
slots are reserved for interactive jobs, and no site or user gets all of them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID

from siteatlas.errors import AddressError, DatabaseError
from siteatlas.logs import get_logger
from siteatlas.net.address import parse_site
from siteatlas.net.client import Waits
from siteatlas.net.egress import EgressPolicy, registrable_domain
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.claims import clear_suspect, mark_alone
from siteatlas.queue.fence import Claim, Priority
from siteatlas.scheduler.outages import ResilientLoop
from siteatlas.storage.models import LOCAL_USER_ID, SYSTEM_USER_ID, JobStatus
from siteatlas.storage.session import get_queue_session, retry_when_busy

PARKED_PER_SLOT = 8
MIN_STAY_SECONDS = 60.0


class StopReason(Enum):
    """Why a running job is stopped from outside."""

    SHUTDOWN = auto()
    CANCELLED = auto()
    LEASE_LOST = auto()
    STALLED = auto()
    DISPLACED = auto()


class Shortage(Enum):
    """Whose slots are all in use; SITE if those of the user are too."""

    SITE = auto()
    USER = auto()


@dataclass(slots=True, eq=False)
class RunningJob:
    """A claimed job with its task; `renewed_at` is on the monotonic clock of this process.

    `site` and `user` name whose share of the slots it uses; None when there is no limit.
    `outcome` is the status that it ended in; None until then, and when it was lost.
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
    """What may be claimed: at most `max_jobs` jobs, none of them of `users_at_limit`.

    Jobs that are not interactive are claimed only until the total reaches `background`.
    """

    max_jobs: int
    background: int
    users_at_limit: frozenset[UUID]


class Slots:
    """A fixed number of slots for jobs.

    `on_free` is called when a slot becomes free and the last claim may have left jobs unclaimed
    for lack of slots.
    """

    def __init__(self, size: int, on_free: Callable[[], None] = lambda: None) -> None:
        self.size = size
        self.reserved = max(1, size // 8) if size > 1 else 0
        self.max_parked = size * PARKED_PER_SLOT
        self.max_per_site = max(2, size // 4)
        self.max_per_user = max(1, size - size // 4)
        self._on_free = on_free
        # Not by id: a lost job may be claimed again while its previous task is still shutting down.
        self._running: set[RunningJob] = set()
        self._parked: set[RunningJob] = set()
        # Those of the parked jobs that never had a slot; they do not use up what may be parked.
        self._unstarted: set[RunningJob] = set()
        self._returning: dict[asyncio.Future[None], RunningJob] = {}
        self._ran_out_of_slots = True
        self._passed_over: frozenset[UUID] = frozenset()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def free(self) -> int:
        """How many more jobs may be claimed; none when too many are parked."""
        if self._parked_after_start >= 2 * self.max_parked:
            return 0
        return self.size - len(self._running)

    @property
    def free_for_background(self) -> int:
        """How many of the free slots jobs that are not interactive may use."""
        if self._parked_after_start >= self.max_parked:
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
    def parked(self) -> int:
        """How many jobs are held without a slot."""
        return len(self._parked)

    @property
    def min_share(self) -> int:
        """The number of jobs that may run regardless of their sites and users."""
        return min(self.max_per_site, self.max_per_user)

    @property
    def _parked_after_start(self) -> int:
        return len(self._parked) - len(self._unstarted)

    def shortages(
        self, shares: Iterable[tuple[str | None, UUID | None]]
    ) -> Iterator[Shortage | None]:
        """For each new job, given as (site, user): which of them has no slot left for it.

        A job that gets a slot counts for the jobs after it.
        """
        sites = Counter(job.site for job in self._running)
        users = Counter(job.user for job in self._running)
        for site, user in shares:
            if site is not None and sites[site] >= self.max_per_site:
                yield Shortage.SITE
            elif user is not None and users[user] >= self.max_per_user:
                yield Shortage.USER
            else:
                sites[site] += 1
                users[user] += 1
                yield None

    def users_at_limit(self) -> set[UUID]:
        """The users who occupy as many slots as one user may."""
        users = {job.user for job in self._running if job.user is not None}
        return {user for user in users if self._count(user=user) >= self.max_per_user}

    def capacity(self, limit: int) -> Capacity:
        """What a claim of up to `limit` jobs may take; pass the result on to `note_claimed`."""
        self._ran_out_of_slots = True
        max_jobs = min(limit, self.free)
        return Capacity(
            max_jobs, min(max_jobs, self.free_for_background), frozenset(self.users_at_limit())
        )

    def note_claimed(self, capacity: Capacity, count: int) -> None:
        """Record the number of jobs claimed: if capacity was left, a free slot needs no claim."""
        self._ran_out_of_slots = count >= capacity.background
        self._passed_over = capacity.users_at_limit

    def add(self, job: RunningJob) -> None:
        """Hold a job: in a slot, or parked when a resumed job has taken its slot or its share."""
        if self._may_run(job):
            self._running.add(job)
        else:
            self._parked.add(job)
            self._unstarted.add(job)
        self._idle.clear()

    def add_parked(self, job: RunningJob) -> None:
        """Hold a job that has to wait for something else first."""
        self._parked.add(job)
        self._idle.clear()

    def remove(self, job: RunningJob) -> None:
        """Remove a job."""
        self._running.discard(job)
        self._parked.discard(job)
        self._unstarted.discard(job)
        if not self._running and not self._parked:
            self._idle.set()
        self._admit_parked()

    def park(self, job: RunningJob) -> None:
        """Free the slot of a job that only waits."""
        if job in self._running:
            self._running.discard(job)
            self._parked.add(job)
            self._admit_parked()

    async def resume(self, job: RunningJob) -> None:
        """Wait until a parked job has a slot again. These come before jobs not yet claimed."""
        # Repeat if it was parked again between getting the slot and this task's next step.
        while job in self._parked:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._returning[ready] = job
            self._admit_parked()
            try:
                await ready
            finally:
                self._returning.pop(ready, None)

    def jobs(self) -> list[RunningJob]:
        """All jobs at this moment."""
        return [*self._running, *self._parked]

    def is_parked(self, job: RunningJob) -> bool:
        """Whether the job is held without a slot."""
        return job in self._parked

    def jobs_to_displace(self) -> list[RunningJob]:
        """The jobs held longest, to be released for others when no more can be parked.

        Each has been held for `MIN_STAY_SECONDS`, so every job makes progress even if there are
        many more than can be parked.
        """
        started = self._parked - self._unstarted
        staying = [job for job in started if job.stop_reason is None]
        if len(staying) < self.max_parked:
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
            and (job.site is None or self._count(site=job.site) < self.max_per_site)
            and (job.user is None or self._count(user=job.user) < self.max_per_user)
        )

    def _count(self, *, site: str | None = None, user: UUID | None = None) -> int:
        return sum(
            (site is None or job.site == site) and (user is None or job.user == user)
            for job in self._running
        )

    def _admit_parked(self) -> None:
        """Give free slots to parked jobs ready to resume: interactive ones first, then by age."""
        waiting = [(ready, job) for ready, job in self._returning.items() if not ready.done()]
        for ready, job in sorted(waiting, key=lambda one: not one[1].is_interactive):
            if self._may_run(job):
                self._parked.discard(job)
                self._unstarted.discard(job)
                self._running.add(job)
                # Here, because a heartbeat may come before the next step of the job's task.
                job.activity.record_event()
                ready.set_result(None)
        if self.free and (self._ran_out_of_slots or self._passed_over - self.users_at_limit()):
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


def slot_shares(claim: Claim, policy: EgressPolicy) -> tuple[str | None, UUID | None]:
    """The registrable domain and the user whose share of the slots a job uses.

    None where there is no limit: for the operator's own hosts, and for our own users.
    """
    user = None if claim.created_by in {LOCAL_USER_ID, SYSTEM_USER_ID} else claim.created_by
    return _slot_share_site(claim, policy), user


def _slot_share_site(claim: Claim, policy: EgressPolicy) -> str | None:
    try:
        address = parse_site(claim.base_url or "")
    except AddressError:
        return None
    return None if policy.is_own(address) else registrable_domain(address.host)


MAX_PAUSE_SECONDS = 300.0


class Surplus:
    """One per process.

    The jobs of a site that are put back become due one after another, as many per second as the
    site has slots. However many there are, the next claims find jobs of other sites, even those of
    lower priority, and rarely take the same jobs again.

    Jobs of a user without a slot keep their time and thereby their order: the next claims skip that
    user until a slot is free.
    """

    def __init__(
        self, slots: Slots, policy: EgressPolicy, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slots = slots
        self._policy = policy
        self._clock = clock
        self._next_due: dict[str | None, float] = {}

    def pauses(self, claims: Sequence[Claim]) -> dict[Claim, float | None]:
        """The claims to be put back, each with the seconds until it is due again.

        None if it is due at the same time as before.
        """
        if len(claims) + self._slots.running <= self._slots.min_share:
            return {}
        shares = [slot_shares(claim, self._policy) for claim in claims]
        now = self._clock()
        self._next_due = {site: at for site, at in self._next_due.items() if at > now}
        return {
            claim: self._pause(site, now) if shortage is Shortage.SITE else None
            for claim, (site, _), shortage in zip(
                claims, shares, self._slots.shortages(shares), strict=True
            )
            # A suspect first waits for the other jobs to end.
            if shortage is not None and not claim.is_suspect
        }

    def _pause(self, site: str | None, now: float) -> float:
        due = max(now + 1.0, self._next_due.get(site, 0.0))
        due = min(due, now + MAX_PAUSE_SECONDS)
        self._next_due[site] = due + 1 / self._slots.max_per_site
        return due - now


log = get_logger("scheduler")

GRACE_SECONDS = 3.0
STOP_SECONDS = 11.0
# The maximum time that a suspect runs alone, and that a series lasts before it is ended.
ISOLATION_SECONDS = 60.0


class Isolation:
    """One per process. `on_end` is called when jobs may be claimed again."""

    def __init__(self, slots: Slots, on_end: Callable[[], None]) -> None:
        self._slots = slots
        self._on_end = on_end
        self._suspect: RunningJob | None = None
        self._watch: asyncio.Task[None] | None = None
        self._series_began: float | None = None
        self._next_series_at = 0.0

    @property
    def is_active(self) -> bool:
        """Whether a suspect runs alone or is about to, so that nothing may be claimed."""
        return self._suspect is not None

    @property
    def is_paused(self) -> bool:
        """Whether suspects have to wait, because it is the turn of the other jobs."""
        return self._series_began is None and time.monotonic() < self._next_series_at

    def reserve(self, suspect: RunningJob) -> None:
        """Stop claiming other jobs, because this suspect has been claimed."""
        self._suspect = suspect
        if self._series_began is None:
            self._series_began = time.monotonic()

    async def isolate(self, job: RunningJob) -> None:
        """If this job is the suspect, stop the others; from then on a death is attributed to it."""
        if job is not self._suspect:
            return
        log.warning("job_isolated", job_id=str(job.claim.job_id), domain=job.claim.domain)
        if await self._stop_other_jobs(job):
            await _record_isolation(job.claim)
        else:
            log.warning("isolation_incomplete", job_id=str(job.claim.job_id))
        self._watch = asyncio.create_task(self._watch_suspect(job))

    def end(self, job: RunningJob) -> None:
        """If the job that ended is the suspect, end its isolation."""
        if job is not self._suspect:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._let_others_follow()

    def end_series(self) -> None:
        """Let the other jobs run for at least as long as the series before the next suspect."""
        if self._series_began is None:
            return
        now = time.monotonic()
        # A series does not last while the process has nothing to do: its last suspect starts
        # within the first minute, and first waits for other jobs.
        longest = 2 * ISOLATION_SECONDS + GRACE_SECONDS + STOP_SECONDS
        duration = min(now - self._series_began, longest)
        self._next_series_at = now + max(ISOLATION_SECONDS, duration)
        self._series_began = None

    async def _stop_other_jobs(self, suspect: RunningJob) -> bool:
        others = [job for job in self._slots.jobs() if job is not suspect]
        tasks = [job.task for job in others if job.task is not None]
        if not tasks:
            return True
        await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for job in others:
            job.stop(StopReason.SHUTDOWN)
        _, running = await asyncio.wait(tasks, timeout=STOP_SECONDS)
        return not running

    async def _watch_suspect(self, suspect: RunningJob) -> None:
        try:
            async with asyncio.timeout(ISOLATION_SECONDS):
                await suspect.activity.document_committed.wait()
        except TimeoutError:
            await _clear_when_possible(suspect.claim)
        # The job keeps running; claiming another suspect now would stop it.
        self.end_series()
        self._let_others_follow()

    def _let_others_follow(self) -> None:
        """Let jobs be claimed again; while the series goes on, suspects first."""
        self._suspect = self._watch = None
        began = self._series_began
        if began is not None and time.monotonic() - began >= ISOLATION_SECONDS:
            self.end_series()
        self._on_end()


async def _record_isolation(claim: Claim) -> None:
    """Record that a suspect is alone; if that fails, its death counts as that of any other job."""
    try:
        await _mark_alone(claim)
    except DatabaseError as error:
        log.warning("isolation_incomplete", job_id=str(claim.job_id), error=error.code)


@retry_when_busy
async def _mark_alone(claim: Claim) -> None:
    async with get_queue_session() as session, session.begin():
        await mark_alone(session, claim)


async def _clear_when_possible(claim: Claim) -> None:
    """Clear a suspect that survived; until then, nothing else may run beside it."""
    resilient_loop, is_cleared = ResilientLoop("isolation"), False
    while not is_cleared:
        async with resilient_loop.iteration():
            async with get_queue_session() as session, session.begin():
                await clear_suspect(session, claim)
            is_cleared = True


MIN_WAIT_SECONDS = 1.0


class Parking:
    """Watches the waits of one job; waits of less than a second do not park it."""

    def __init__(self, slots: Slots, job: RunningJob) -> None:
        self._slots = slots
        self._job = job
        self._timer: asyncio.TimerHandle | None = None
        self.waits = Waits(self._park_for_wait, self._resume)

    def stop(self) -> None:
        """Stop parking the job, which has ended."""
        self._cancel_parking_timer()

    def _park_for_wait(self, seconds: float) -> None:
        self._cancel_parking_timer()
        if math.isinf(seconds):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MIN_WAIT_SECONDS, self._park_if_idle)
        elif seconds >= MIN_WAIT_SECONDS:
            self._slots.park(self._job)

    def _park_if_idle(self) -> None:
        if self.waits.is_idle:
            self._slots.park(self._job)

    async def _resume(self) -> None:
        self._cancel_parking_timer()
        await self._slots.resume(self._job)
        self._job.activity.record_event()

    def _cancel_parking_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
