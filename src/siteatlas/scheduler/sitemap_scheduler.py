"""The clock: APScheduler ticks that queue due sites, claim pending jobs, and prune.

The tick is a fallback for the consumer's polling and for the due clock, which queues each site on
time. It does not wait for the jobs that it starts, except in `process_pending_sitemaps`, which runs
the whole cycle in one call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from siteatlas.catalog.access import (
    prune_audit_events,
    prune_browser_sessions,
    prune_rate_limits,
)
from siteatlas.catalog.domains import postpone_scan, prune_deleted_domains, take_due_domains
from siteatlas.catalog.scans import record_domain_failure
from siteatlas.catalog.webhooks import prune_deliveries
from siteatlas.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    JobActive,
    SiteatlasError,
)
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.delivery import Dispatcher, PollResult
from siteatlas.processor.judgement import judge_next_site
from siteatlas.processor.steps import terminate_stalled_writers
from siteatlas.queue.completion import request_follow_ups
from siteatlas.queue.fence import Priority, SubmittedJob
from siteatlas.queue.metrics import count_waiting
from siteatlas.queue.retention import (
    Retention,
    prune_batches,
    prune_feed,
    prune_jobs,
    prune_removed_urls,
    prune_unrequested_documents,
    prune_workers,
    raise_retained_from,
)
from siteatlas.queue.submission import close_batches, submit_site
from siteatlas.scheduler.consumer import Consumer
from siteatlas.scheduler.outages import (
    TICK,
    DueClock,
    Liveness,
    ResilientLoop,
    TickTimes,
    run_until,
)
from siteatlas.settings import Settings, load_settings
from siteatlas.storage.engine import translated_faults
from siteatlas.storage.models import SYSTEM_USER_ID
from siteatlas.storage.session import AsyncSession, get_background_session

POLL_SECONDS = 1.0
# Longer while there is no webhook: the first message of one that another process created may be
# that late.
IDLE_SECONDS = 15.0
# How long a site may wait for its URLs to be judged.
JUDGE_SECONDS = 5.0


class DeliveryLoop:
    """One per process, next to the consumer."""

    def __init__(self, settings: Settings, policy: EgressPolicy) -> None:
        self._dispatcher = Dispatcher(settings, policy)
        self._look_requested = asyncio.Event()

    def look(self) -> None:
        """Look for messages soon: a webhook was created or changed in this process."""
        self._look_requested.set()

    async def run(self) -> None:
        """Deliver until cancelled, then return the endpoints that this process holds."""
        resilient_loop = ResilientLoop("webhooks")
        try:
            while True:
                result = PollResult.CAUGHT_UP
                self._look_requested.clear()
                async with resilient_loop.iteration():
                    result = await self._dispatcher.poll()
                await self._pause(result)
        finally:
            await self._dispatcher.stop()

    async def _pause(self, result: PollResult) -> None:
        if result is PollResult.SLOTS_TAKEN:
            await self._dispatcher.wait_for_slot()
            # Slots that become free within this time are filled by one poll.
            await asyncio.sleep(0.02)
            return
        await asyncio.sleep(POLL_SECONDS)
        if result is PollResult.NO_WEBHOOK:
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._look_requested.wait()


async def judge_urls() -> None:
    """Judge sites whose URLs have changed, one at a time, until cancelled.

    It takes a fifth of the time at most: scans come first.
    """
    resilient_loop = ResilientLoop("judgement")
    while True:
        judged, began = False, time.monotonic()
        async with resilient_loop.iteration():
            judged = await judge_next_site()
        taken = time.monotonic() - began
        await asyncio.sleep(4 * taken if judged else JUDGE_SECONDS)


log = get_logger("scheduler")

RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _DueSite:
    """A watched site that is due, copied from its row because that expires with a savepoint."""

    id: UUID
    domain: str
    base_url: str
    max_pages: int | None


async def enqueue_due_domains(settings: Settings) -> int:
    """Queue a scan of each watched site that is due, a batch at a time until none is left.

    A site that cannot be queued is recorded as failed until its next scan. One whose rows are
    locked is due again in a minute. One that has a job of a user is queued when that job ends,
    unless the job counts as the scheduled scan.
    """
    total = 0
    while results := await _enqueue_batch(settings):
        total += sum(results)
    return total


async def _enqueue_batch(settings: Settings) -> list[bool]:
    async with get_background_session() as session, session.begin():
        domains = await take_due_domains(
            session, settings.scheduler_batch_size, settings.scan_interval_hours
        )
        due = [_DueSite(d.id, d.domain, d.base_url, d.max_pages) for d in domains]
        active: dict[int, _DueSite] = {}
        queued = [await _enqueue_due_site(session, site, settings, active) for site in due]
        await _follow_active_jobs(session, active)
        return queued


async def _follow_active_jobs(session: AsyncSession, active: Mapping[int, _DueSite]) -> None:
    followed: set[int] = set()
    with suppress(DatabaseBusy), translated_faults():
        async with session.begin_nested():
            followed = await request_follow_ups(session, active)
    for job_id in active.keys() - followed:
        await postpone_scan(session, active[job_id].id, RETRY_SECONDS)


async def _enqueue_due_site(
    session: AsyncSession, site: _DueSite, settings: Settings, active: dict[int, _DueSite]
) -> bool:
    """Queue a due site; if that fails, log it and go on with the others. True if queued.

    A site that has a job of a user is added to `active`.
    """
    try:
        with translated_faults():
            async with session.begin_nested():
                submitted = await _submit_due_site(session, site, settings)
    except DatabaseBusy as error:
        log.warning("due_domain_postponed", domain=site.domain, reason=error.code)
        await postpone_scan(session, site.id, RETRY_SECONDS)
        return False
    except DatabaseError:
        raise
    except Exception as error:
        own = error if isinstance(error, SiteatlasError) else SiteatlasError()
        log.warning(
            "due_domain_failed",
            domain=site.domain,
            base_url=site.base_url,
            error_code=own.code,
            error=own.message,
            exc_info=None if error is own else error,
        )
        await record_domain_failure(session, site.id, own.code)
        return False
    if submitted.deduplicated and not submitted.is_scheduled:
        log.info("due_domain_postponed", domain=site.domain, reason=JobActive.code)
        active[submitted.id] = site
        return False
    log.info("domain_due", domain=site.domain)
    return True


async def _submit_due_site(
    session: AsyncSession, site: _DueSite, settings: Settings
) -> SubmittedJob:
    return await submit_site(
        session,
        parse_site(site.base_url),
        created_by=SYSTEM_USER_ID,
        max_pages=site.max_pages,
        interval_hours=settings.scan_interval_hours,
        priority=Priority.SCHEDULED,
        max_attempts=settings.max_attempts,
    )


@dataclass(frozen=True, slots=True)
class TickReport:
    """What one run over the queue found and did; outcomes by the UUID of the job."""

    looked_for: int
    found: int
    due_enqueued: int
    outcomes: dict[str, str] = field(default_factory=dict)


class SitemapScheduler:
    """The consumer and its clock in one process."""

    def __init__(self, settings: Settings, policy: EgressPolicy) -> None:
        self._settings = settings
        self._clock = AsyncIOScheduler(timezone=UTC)
        self._ticks = TickTimes(self._clock)
        self._consumer = Consumer(settings, policy, self._ticks)
        self.drain = self._consumer.drain
        self._stop = asyncio.Event()
        self._claimed_before = 0
        self._stopping = False
        self._working: asyncio.Task[None] | None = None
        self._due_clock = DueClock(self._enqueue_due)
        self._watching: asyncio.Task[None] | None = None
        self._deliveries = DeliveryLoop(settings, policy)
        self._delivering: asyncio.Task[None] | None = None
        self._judging: asyncio.Task[None] | None = None
        self._liveness = Liveness(settings.lease_seconds, meters)

    @property
    def worker_id(self) -> str:
        """The name of this process in the registry of workers."""
        return self._consumer.worker_id

    @property
    def next_tick_at(self) -> datetime | None:
        """When the clock ticks next; None while it does not run."""
        return self._ticks.next_at

    @property
    def is_alive(self) -> bool:
        """Whether none of its tasks has ended and its loops are running."""
        return self._liveness.is_alive and not any(task.done() for task in self._tasks())

    def wake(self) -> None:
        """A job was queued in this process: take it without waiting for the next poll."""
        self._consumer.wake()

    def reschedule(self) -> None:
        """A site may be due earlier than it was, or a webhook may have messages."""
        self._due_clock.look()
        self._deliveries.look()

    async def start(self) -> None:
        """Start the clock and the consumer."""
        common = {
            "coalesce": True,
            "max_instances": self._settings.scheduler_max_instances,
            "misfire_grace_time": 60,
            "replace_existing": True,
        }
        minutes = self._settings.scheduler_interval_minutes
        self._clock.add_job(
            self.tick,
            "interval",
            minutes=minutes,
            id=TICK,
            next_run_time=datetime.now(UTC),
            **common,
        )
        keep = Retention.of(self._settings)
        self._clock.add_job(prune, "interval", minutes=10, id="prune", args=[keep], **common)
        self._clock.add_job(
            terminate_stalled_writers,
            "interval",
            seconds=30,
            id="clearance",
            **common,
        )
        self._clock.start()
        meters.record_heartbeat()
        meters.record_poll()
        self._working = asyncio.create_task(self._consumer.run(self._stop), name="consumer")
        self._watching = asyncio.create_task(self._due_clock.run(), name="due clock")
        self._delivering = asyncio.create_task(self._deliveries.run(), name="webhooks")
        self._judging = asyncio.create_task(judge_urls(), name="judgement")
        for task in self._tasks():
            task.add_done_callback(self._note_end)
        log.info("scheduler_started", interval_minutes=minutes, worker_id=self.worker_id)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then release the jobs that could not be finished.

        Raises SchedulerEnded if a task of the scheduler ends before.
        """
        await self.start()
        try:
            await run_until(stop, self._tasks())
        finally:
            await self.shutdown()

    async def shutdown(self) -> None:
        """Stop the clock, let the consumer release its jobs, and wait for it."""
        self._stopping = True
        await self._consumer.stop_claiming()
        for task in (self._watching, self._delivering, self._judging):
            if task is not None:
                task.cancel()
        if self._clock.running:
            self._clock.shutdown(wait=False)
        self._stop.set()
        await asyncio.gather(*self._tasks(), return_exceptions=True)
        log.info("scheduler_stopped", worker_id=self.worker_id)

    def _tasks(self) -> list[asyncio.Task[None]]:
        tasks = (self._working, self._watching, self._delivering, self._judging)
        return [task for task in tasks if task is not None]

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Log the end of a task; without the consumer the clock must not claim jobs either."""
        error = None if task.cancelled() else task.exception()
        if error is not None or not self._stopping:
            log.error("scheduler_ended", task=task.get_name(), exc_info=error)
        if task is self._working and self._clock.running:
            self._clock.shutdown(wait=False)

    async def tick(self) -> None:
        """Queue the sites that are due, then claim waiting jobs. No failed step ends a tick.

        Only the shutdown of the clock does; APScheduler would log that with a traceback.
        """
        with suppress(asyncio.CancelledError):
            await self._tick()

    async def _tick(self) -> None:
        limit = self._settings.scheduler_batch_size
        self._ticks.last_at = datetime.now(UTC)
        log.info("tick_started", looked_for=limit)
        due = await _step("due_domains", enqueue_due_domains(self._settings))
        result = await _step("claim", self._consumer.claim_jobs(limit))
        waiting = await _step("count", _count_waiting_after_tick())
        if due is result is waiting is None:
            return
        found, self._claimed_before = self._found(), self._consumer.claimed
        log.info("tick_ended", looked_for=limit, found=found, due_enqueued=due, waiting=waiting)

    def _found(self) -> int:
        """The jobs claimed since the last tick: most of them by polls, which come more often."""
        return self._consumer.claimed - self._claimed_before

    async def _enqueue_due(self) -> None:
        if await enqueue_due_domains(self._settings):
            self._consumer.wake()


async def _step(name: str, work: Coroutine[Any, Any, int]) -> int | None:
    """One step of a tick; an error is logged and does not prevent the next step."""
    try:
        return await work
    except DatabaseError as error:
        log.warning("tick_skipped", step=name, reason=error.code)
    except Exception:
        log.exception("tick_failed", step=name)
    return None


async def _count_waiting_after_tick() -> int:
    async with get_background_session() as session, session.begin():
        return await count_waiting(session)


async def process_pending_sitemaps(
    limit: int = 10, *, settings: Settings | None = None, policy: EgressPolicy | None = None
) -> TickReport:
    """Queue what is due, claim up to `limit` waiting jobs, run them, and wait for their end."""
    settings = settings or load_settings().settings
    policy = policy or EgressPolicy.from_text(settings.egress_allow)
    log.info("tick_started", looked_for=limit)
    due = await enqueue_due_domains(settings)
    outcomes = await Consumer(settings, policy).run_once(limit)
    found = len(outcomes)
    waiting = await _count_waiting_after_tick()
    log.info("tick_ended", looked_for=limit, found=found, due_enqueued=due, waiting=waiting)
    return TickReport(limit, found, due, outcomes)


PruneStep = Callable[[AsyncSession], Awaitable[int]]


async def prune(keep: Retention = Retention()) -> None:
    """The clock's periodic pruning of old records; a step that fails does not keep others waiting.

    During an outage all steps are skipped.
    """
    for name, prune_step in _prune_steps(keep).items():
        try:
            await _prune(name, prune_step)
        except DatabaseUnavailable as error:
            log.warning("prune_skipped", what=name, reason=error.code)
            return
        except DatabaseError as error:
            log.warning("prune_skipped", what=name, reason=error.code)
        except Exception:
            log.exception("prune_failed", what=name)


def _prune_steps(keep: Retention) -> dict[str, PruneStep]:
    return {
        "close_batches": close_batches,
        "prune_jobs": partial(prune_jobs, keep=keep),
        "prune_batches": partial(prune_batches, keep=keep),
        "prune_never_asked": prune_unrequested_documents,
        "prune_workers": prune_workers,
        "raise_retained_from": partial(raise_retained_from, days=keep.change_days),
        "prune_feed": partial(prune_feed, days=keep.change_days, kept_scans=keep.scans),
        "prune_removed_urls": partial(prune_removed_urls, days=keep.days_for_removed_urls),
        "prune_deleted_domains": prune_deleted_domains,
        "prune_browser_sessions": prune_browser_sessions,
        "prune_rate_limits": prune_rate_limits,
        "prune_audit_events": partial(prune_audit_events, days=keep.audit_days),
        "prune_deliveries": partial(prune_deliveries, days=keep.delivery_days),
    }


async def _prune(name: str, prune_step: PruneStep) -> None:
    for _ in range(50):
        async with get_background_session() as session, session.begin():
            removed = await prune_step(session)
        if not removed:
            return
        log.info("pruned", what=name, rows=removed)
