"""One job from its claim to its final status: open the scan, drive the scanner, publish.

No transaction waits for the network: batches are written in separate transactions. The consumer
takes the claim and renews the lease; `process_domain_with_own_session` does both itself, for a job
that runs without a worker. `Recounts` updates the counters of a site after a scan that was not
published, apart from the end of the job, because counting a large site takes long.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from siteatlas.aio import background_task, fair_loop
from siteatlas.catalog.domains import (
    find_site_headers,
    has_baseline,
    register_domain,
    was_searched,
)
from siteatlas.catalog.scans import (
    ScanCounts,
    correct_domain_counts,
    count_domain,
    open_scan,
    recorded_domain_counts,
    scanned_domain,
)
from siteatlas.catalog.sitemaps import KnownSitemap, load_manual_documents, load_sitemaps
from siteatlas.catalog.urls import count_distinct_urls
from siteatlas.errors import (
    AddressError,
    DatabaseBusy,
    DatabaseError,
    DatabaseTimeout,
    DatabaseUnavailable,
    JobCancelled,
    JobDataInvalid,
    JobNotFound,
    LeaseLost,
    NoSitemap,
    RateLimited,
    ScanError,
    ScanTimeout,
    SchemaOutdated,
    SiteatlasError,
)
from siteatlas.logs import get_logger, job_context
from siteatlas.meters import meters
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.client import Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import DnsResolver, configured_proxy
from siteatlas.processor.documents import OpenedScan, build_scan_memory
from siteatlas.processor.entries import EntryMemoryBudget
from siteatlas.processor.publication import (
    count_releases_with_own_session,
    count_snoozes_with_own_session,
    publish,
    record_cancellation,
    record_failure,
    return_to_queue,
)
from siteatlas.processor.recorder import START_PROGRESS, Recorder, record_events
from siteatlas.processor.settlement import RemovalRules, end_of_scan
from siteatlas.processor.steps import STEP_SECONDS, FencedSteps, JobActivity
from siteatlas.queue.claims import claim_one
from siteatlas.queue.completion import MAX_POSTPONEMENTS, MAX_SNOOZES, postpone_seconds
from siteatlas.queue.fence import (
    FINAL_STATUSES,
    HEARTBEATS_PER_LEASE,
    UNPUBLISHED,
    Claim,
    Priority,
    assign_domain,
    heartbeat,
)
from siteatlas.queue.job_service import job_service
from siteatlas.queue.opening import NewScan, open_new_scan, report_start
from siteatlas.scanner.analyzer import ScanOptions, SitemapAnalyzer
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.scanner.options import MAX_DOCUMENTS, Probe
from siteatlas.settings import Settings, load_settings
from siteatlas.storage.models import Domain, JobStatus
from siteatlas.storage.session import (
    AsyncSession,
    get_autocommit_session,
    get_background_session,
    get_job_session,
    retry_when_busy,
)

log = get_logger("processor")

MAX_DOCUMENTS_PER_DOMAIN = 100_000
MIN_DOCUMENTS = 100
# The database is reachable but busy, or has another schema version. Like an outage, this is not the
# fault of the job.
POSTPONING_ERRORS: tuple[type[DatabaseError], ...] = (DatabaseBusy, DatabaseTimeout, SchemaOutdated)


class Processor:
    """Runs jobs. One per process: its jobs share politeness and memory budget."""

    def __init__(self, settings: Settings, policy: EgressPolicy) -> None:
        self._settings = settings
        self._policy = policy
        self._budget = EntryMemoryBudget()
        self._removal_rules = RemovalRules(
            confirm_after=timedelta(minutes=settings.removal_confirm_minutes),
            hold_at_most=timedelta(days=settings.removal_hold_days),
        )
        proxy = configured_proxy(settings)
        if proxy is not None:
            log.warning("egress_through_proxy", proxy=str(proxy))
        self._analyzer = SitemapAnalyzer(
            policy,
            Politeness(
                settings.host_delay,
                settings.host_connections,
                address_rates=settings.rates_by_range,
            ),
            user_agent=settings.user_agent,
            proxy=proxy,
            resolver=DnsResolver(settings.name_servers),
        )

    async def run(self, claim: Claim, activity: JobActivity) -> JobStatus | None:
        """Work on a claimed job. Return its status, or None if that could not be recorded."""
        with job_context(job_id=str(claim.job_id), domain=claim.domain):
            log.info("job_started", attempt=claim.attempt, fence=claim.fence)
            try:
                status = await self._run_guarded(claim, activity)
            except LeaseLost:
                log.warning("lease_lost", fence=claim.fence)
                meters.lease_losses += 1
                activity.lease_lost = True
                return None
            if status in FINAL_STATUSES:
                meters.jobs_ended[status.value] += 1
            # A job whose end could not be recorded is released or rescued later.
            log.info("job_ended", status=status.value if status else "unrecorded")
            return status

    async def _run_guarded(self, claim: Claim, activity: JobActivity) -> JobStatus | None:
        """The error boundary of one job: every error but LeaseLost is recorded as its status."""
        try:
            with activity.mark_ending():
                async with asyncio.timeout(6 * 3600):
                    address = await _find_address(claim)
                    claim = replace(claim, domain=claim.domain or address.domain)
                    if claim.domain_id is None:
                        # So that the outcome of the job is recorded there too.
                        claim = replace(claim, domain_id=await _register(claim, address))
                    self._policy.require(address)
                    return await self._scan_and_publish(claim, address, activity)
        except LeaseLost:
            raise
        except JobCancelled:
            await record_cancellation(claim)
            return JobStatus.CANCELLED
        except DatabaseUnavailable as error:
            log.warning("database_unavailable_during_job", cause=repr(error.__cause__))
            return await self._release_job(claim)
        except POSTPONING_ERRORS as error:
            return await self._postpone(claim, error)
        except RateLimited as error:
            return await self._snooze(claim, error)
        except TimeoutError:
            return await self._record_failure(claim, ScanTimeout())
        except SiteatlasError as error:
            return await self._record_failure(claim, error)
        except Exception:
            log.exception("job_crashed")
            return await self._record_failure(claim, SiteatlasError(), transient=True)

    async def _scan_and_publish(
        self, claim: Claim, address: WebAddress, activity: JobActivity
    ) -> JobStatus:
        scan = await self._open(claim, address)
        recorder = Recorder(
            claim, scan, activity, lease_seconds=self._settings.lease_seconds, budget=self._budget
        )
        try:
            with activity.mark_ending():
                failure = await self._scan(claim, address, scan, recorder, activity)
            finished = await recorder.finish()
            steps = FencedSteps(claim, activity, lease_seconds=self._settings.lease_seconds)
            probe = partial(self._analyzer.probe_documents, address, headers=scan.headers)
            end = end_of_scan(steps, scan, finished, self._removal_rules, probe, failure)
            default_interval_hours = self._settings.scan_interval_hours
            status, result = await publish(steps, finished, end, default_interval_hours)
            log.info(
                "scan_published",
                scan_id=scan.id,
                sitemaps=result.get("sitemap_count"),
                urls=result.get("url_count"),
                partial=result.get("partial"),
            )
            return status
        except (ScanError, AddressError):
            await recorder.flush()
            raise
        except asyncio.CancelledError:
            # If the lease was lost, the fence refuses the write.
            await _save_within_timeout(recorder)
            raise
        finally:
            await recorder.abandon()

    async def _scan(
        self,
        claim: Claim,
        address: WebAddress,
        scan: OpenedScan,
        recorder: Recorder,
        activity: JobActivity,
    ) -> NoSitemap | None:
        """Run the scanner with the options of the job and record its events.

        Return the error if a known site has no sitemap any more: that may be the result.
        """
        memory = await build_scan_memory(scan.known)
        scan.known.clear()
        options = ScanOptions(
            max_urls=claim.max_pages or self._settings.max_urls_per_scan,
            urls_done=recorder.url_count,
            probe=await _probe_of(claim, scan),
            max_documents=_remaining_document_limit(scan.stored_count),
            robots_unreachable=self._settings.robots_unreachable,
            only_document=claim.document,
            manual_documents=scan.manual,
            child_filter=claim.child_filter,
            headers=scan.headers,
        )
        log.info("scan_started", scan_id=scan.id, resumed=scan.resumed)
        try:
            async with aclosing(self._analyzer.scan(address, options, memory)) as events:
                await record_events(events, recorder, activity)
        except NoSitemap as error:
            if claim.document is not None or not scan.stored_count:
                raise
            recorder.reasons.insert(0, error.code)
            return error
        return None

    @retry_when_busy
    async def _open(self, claim: Claim, address: WebAddress) -> OpenedScan:
        assert claim.domain_id is not None
        await fair_loop().yield_to_interactive()
        async with get_autocommit_session(for_job=True) as session:
            new = await open_new_scan(
                session,
                claim,
                lease_seconds=self._settings.lease_seconds,
                progress=START_PROGRESS,
            )
        if new is None or new.known is None:
            return await self._continue(claim, claim.domain_id, address, new)
        headers = None
        if new.has_headers:
            async with get_autocommit_session(for_job=True) as session:
                headers = await find_site_headers(session, claim.domain_id)
        manual = new.manual + _not_yet_requested(new.known, new.joined)
        return OpenedScan(
            id=new.id,
            domain_id=claim.domain_id,
            domain=address.domain,
            resumed=False,
            known=new.known,
            stored_count=len(new.known),
            manual=manual,
            has_baseline=new.has_baseline,
            headers=headers,
        )

    async def _continue(
        self, claim: Claim, domain_id: UUID, address: WebAddress, new: NewScan | None
    ) -> OpenedScan:
        """Continue the scan of an earlier attempt, or open that of a site with many sitemaps."""
        async with get_job_session() as session, session.begin():
            scan_id, resumed = (
                (new.id, False)
                if new
                else await open_scan(
                    session,
                    job_id=claim.id,
                    domain_id=domain_id,
                    max_pages=claim.max_pages,
                    scope=claim.scope,
                )
            )
            known, stored = await load_sitemaps(session, domain_id, scan_id, resumed=resumed)
            manual = await load_manual_documents(session, domain_id) if stored else ()
            baseline = await has_baseline(session, domain_id)
            headers = await find_site_headers(session, domain_id)
            joined = await report_start(
                session,
                claim,
                lease_seconds=self._settings.lease_seconds,
                progress=START_PROGRESS,
            )
        manual += _not_yet_requested(known, joined)
        return OpenedScan(
            scan_id, domain_id, address.domain, resumed, known, stored, manual, baseline, headers
        )

    async def _record_failure(
        self, claim: Claim, error: SiteatlasError, *, transient: bool = False
    ) -> JobStatus | None:
        transient = transient or error.transient
        will_retry = transient and claim.attempt < claim.max_attempts
        expected = will_retry and isinstance(error, (ScanError, AddressError))
        (log.info if expected else log.warning)(
            "job_failed",
            error_code=error.code,
            error=error.message,
            transient=transient,
            retried=will_retry,
        )
        try:
            return await record_failure(
                claim, code=error.code, message=error.message, transient=transient
            )
        except DatabaseUnavailable:
            return None

    async def _snooze(self, claim: Claim, error: RateLimited) -> JobStatus | None:
        if await count_snoozes_with_own_session(claim) >= MAX_SNOOZES:
            return await self._record_failure(claim, error)
        wanted = error.retry_after or 60.0
        pause = min(max(wanted, 1.0), 3600.0)
        log.info("job_snoozed", seconds=pause)
        return await return_to_queue(claim, pause_seconds=pause, snooze=True, reason=error.code)

    async def _postpone(self, claim: Claim, error: DatabaseError) -> JobStatus | None:
        codes = [kind.code for kind in POSTPONING_ERRORS]
        times = await count_releases_with_own_session(claim, codes)
        if times >= MAX_POSTPONEMENTS:
            return await self._record_failure(claim, error)
        pause = postpone_seconds(times, random.uniform(-1, 1))
        log.warning(
            "job_postponed", error_code=error.code, seconds=round(pause, 1), times=times + 1
        )
        return await return_to_queue(claim, pause_seconds=pause, reason=error.code)

    async def _release_job(self, claim: Claim) -> JobStatus | None:
        """Release the job after a database outage; its attempt does not count."""
        try:
            return await return_to_queue(claim, pause_seconds=3.0, reason=DatabaseUnavailable.code)
        except DatabaseUnavailable:
            return None


async def _find_address(claim: Claim) -> WebAddress:
    """The address in the request of a job, or else that of its site."""
    base_url = claim.base_url
    if base_url is None and claim.domain_id is not None:
        async with get_job_session() as session, session.begin():
            site = await session.get(Domain, claim.domain_id)
            base_url = None if site is None else site.base_url
    if base_url is None:
        raise JobDataInvalid
    return parse_site(base_url)


@retry_when_busy
async def _register(claim: Claim, address: WebAddress) -> UUID:
    async with get_job_session() as session, session.begin():
        site = await register_domain(session, address, created_by=claim.created_by)
        await assign_domain(session, claim, site.id)
        return site.id


def _not_yet_requested(
    known: Mapping[UUID, KnownSitemap], documents: Iterable[str]
) -> tuple[str, ...]:
    named = (s for s in known.values() if s.discovery_method == DiscoveryMethod.MANUAL)
    paths = {_manual_document_path(url) for s in named for url in (s.url, s.requested_url) if url}
    return tuple(document for document in documents if _manual_document_path(document) not in paths)


def _manual_document_path(document: str) -> str:
    return document if document.startswith("/") else parse_site(document).path


async def _probe_of(claim: Claim, scan: OpenedScan) -> Probe:
    """A schedule does not repeat a long search for what was not there lately."""
    if claim.priority < Priority.SCHEDULED or claim.is_narrow or scan.stored_count:
        return "auto"
    async with get_job_session() as session, session.begin():
        return "quick" if await was_searched(session, scan.domain_id) else "auto"


def _remaining_document_limit(stored: int) -> int:
    remaining = MAX_DOCUMENTS_PER_DOMAIN - stored
    return max(min(remaining, MAX_DOCUMENTS), MIN_DOCUMENTS)


async def _save_within_timeout(recorder: Recorder) -> None:
    """Save the rows of a stopped job if that is quick; else a later attempt reads them again."""
    with suppress(TimeoutError, SiteatlasError):
        async with asyncio.timeout(5.0):
            await recorder.flush()


async def process_domain_with_own_session(
    job_id: str | int | UUID,
    domain: str | None = None,
    user_id: str | UUID | None = None,  # noqa: ARG001  # a job keeps its owner
    max_urls: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> JobStatus | None:
    """Run one waiting job now, in this process, with a database that is open in it.

    For callers that know a job only by its id. None when there is nothing
    to run: the job is unknown (a warning says so), or it is not waiting. `domain` is the site of
    a job that names none; one that names another keeps it, with a warning. `user_id` changes
    nothing: a job belongs to its submitter. `max_urls`, or `max_urls` in `options`, takes
    the place of the job's own limit.
    """
    settings = load_settings().settings
    processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
    claim = await _claim_waiting(job_id, settings.lease_seconds)
    if claim is None:
        return None
    limit = max_urls if max_urls is not None else (options or {}).get("max_urls")
    claim = replace(_with_site(claim, domain), max_pages=limit or claim.max_pages)
    async with background_task(_keep_lease(claim, settings.lease_seconds)):
        status = await processor.run(claim, JobActivity())
    if status in UNPUBLISHED:
        await recount_site(claim.id)
    return status


async def _claim_waiting(job_id: str | int | UUID, lease_seconds: float) -> Claim | None:
    try:
        async with get_background_session() as session, session.begin():
            job = await job_service.get_by_id(session, job_id)
            claim = await claim_one(session, job.id, "own-session", lease_seconds)
    except JobNotFound:
        log.warning("job_not_found", job_id=str(job_id))
        return None
    if claim is None:
        log.info("job_not_pending", job_id=str(job_id), status=job.status)
    return claim


def _with_site(claim: Claim, domain: str | None) -> Claim:
    if not domain:
        return claim
    if claim.domain is None:
        return replace(claim, domain=domain, base_url=domain)
    with suppress(AddressError):
        if parse_site(domain).domain == parse_site(claim.domain).domain:
            return claim
    log.warning("domain_mismatch", job_id=str(claim.job_id), domain=claim.domain, given=domain)
    return claim


async def _keep_lease(claim: Claim, lease_seconds: float) -> None:
    while True:
        await asyncio.sleep(lease_seconds / HEARTBEATS_PER_LEASE)
        with suppress(DatabaseError):
            async with get_background_session() as session, session.begin():
                await heartbeat(session, [claim], lease_seconds)


class Recounts:
    """Recounts sites in the background. One per process: it holds the tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, *job_ids: int) -> None:
        """Count the sites that these jobs scanned; they have ended without publishing."""
        for job_id in job_ids:
            task = asyncio.create_task(recount_site(job_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float | None = None) -> None:
        """Wait for what is being counted, at most so long; the rest is left to the next scan."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()


async def recount_site(job_id: int) -> None:
    """Bring the counters of the site that a job scanned in line with its rows.

    What goes wrong is logged and nothing more: the job has ended, and the next scan counts again.
    """
    try:
        async with get_job_session(statement_seconds=STEP_SECONDS) as session, session.begin():
            await _recount(session, job_id)
    except DatabaseError as error:
        log.warning("domain_recount_failed", job=job_id, reason=error.code)
    except Exception:
        log.exception("domain_recount_failed", job=job_id)


async def _recount(session: AsyncSession, job_id: int) -> None:
    """Counters that a newer scan wrote meanwhile are left as they are."""
    domain_id = await scanned_domain(session, job_id)
    if domain_id is None:
        return
    recorded = await recorded_domain_counts(session, domain_id)
    sitemaps, urls = await count_domain(session, domain_id)
    if (sitemaps, urls) == (recorded.sitemaps, recorded.urls):
        return
    distinct = urls if sitemaps <= 1 else await count_distinct_urls(session, domain_id, urls)
    counts = ScanCounts(sitemaps, urls, distinct)
    await correct_domain_counts(session, domain_id, counts, instead_of=recorded)
