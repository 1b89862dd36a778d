"""The end of a scan: published with its counters, or recorded as failed, in one transaction.

The job is written last but for the number of the feed: its row is locked only briefly, and a worker
that has lost the job rolls back everything that it wrote before. What must be known before that,
such as which URLs were removed, is the work of `settlement`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import Any
from uuid import UUID

from siteatlas.aio import fair_loop
from siteatlas.catalog.change_feed import (
    add_baselines,
    add_document_events,
    add_domain_event,
    announce_failure,
    number_scan,
)
from siteatlas.catalog.domains import DEFAULT_INTERVAL_HOURS
from siteatlas.catalog.findings import (
    announce_findings,
    record_site_findings,
    resolve_findings_of,
)
from siteatlas.catalog.removals import mark_gone, mark_returned
from siteatlas.catalog.robots import RobotsChange, RobotsText, record_robots
from siteatlas.catalog.scans import (
    Publication,
    Rescheduling,
    ScanCounts,
    ScanSummary,
    close_unfinished,
    count_domain,
    end_scan,
    publish_scan,
    record_domain_failure,
    report_new_documents,
    report_silent_reads,
    summarise_scan,
)
from siteatlas.catalog.site_history import load_stored_site
from siteatlas.catalog.urls import count_distinct_urls
from siteatlas.catalog.write_batch import flush_batch
from siteatlas.errors import AddressError, DatabaseBusy, LeaseLost, UrlLimitReached
from siteatlas.findings.history import ROBOTS_RULES, judge_stored
from siteatlas.findings.policies import CLOSED, OPENED, compare_access
from siteatlas.findings.rules import SITE_RULES
from siteatlas.meters import meters
from siteatlas.net.address import parse_url
from siteatlas.processor.documents import OpenedScan
from siteatlas.processor.settlement import RemovalDecision, ScanEnd, Settled, Settlement
from siteatlas.processor.steps import (
    STEP_SECONDS,
    FencedSteps,
    FinishedScan,
    terminate_stalled_writers,
)
from siteatlas.queue.completion import (
    cancel_running,
    complete,
    count_releases,
    count_snoozes,
    fail,
    outcome_of_failure,
    predict_status,
    release,
)
from siteatlas.queue.fence import Claim
from siteatlas.scanner.events import RobotsRead
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.storage.models import (
    SYSTEM_USER_ID,
    FeedEventKind,
    JobStatus,
    LastScanStatus,
    RemovalEvidence,
    ScanScope,
    ScanState,
)
from siteatlas.storage.session import AsyncSession, get_job_session, retry_when_busy
from siteatlas.text import storable

ROBOTS_FAILURES = frozenset({"robots_unreachable", "server_error"})
MAX_LISTED_SITEMAPS = 100
MAX_DIFF_LINES = 200
MAX_DIFF_CHARS = 10_000

Result = tuple[JobStatus, dict[str, Any]]


async def publish(
    steps: FencedSteps,
    finished: FinishedScan,
    end: ScanEnd,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
) -> Result:
    """Write the last rows, settle what changed, and publish the scan.

    If nothing is to be settled, all of that is one transaction. `default_interval_hours` applies to
    sites without an interval of their own. Return the status and the result of the job.
    """
    final = FinalTransaction(steps, finished, end, default_interval_hours)
    written = await final.write_last_rows()
    if not isinstance(written, ScanSummary):
        return written
    settled = await _settle(steps, end, written)
    status, result = await final.publish_settled(settled)
    if status is JobStatus.COMPLETED:
        meters.changes.update(settled.changes.by_kind)
    return status, result


async def _settle(steps: FencedSteps, end: ScanEnd, summary: ScanSummary) -> Settled:
    """Settle a scan, and count what its final transaction must not count."""
    settled = await Settlement(steps, end, summary).run()
    if not _must_count(summary):
        return settled
    distinct = await steps.read(
        lambda session: count_distinct_urls(session, end.scan.domain_id, summary.stored_urls)
    )
    return replace(settled, distinct_urls=distinct)


@dataclass(frozen=True, slots=True)
class FinalTransaction:
    """The transaction that publishes a scan, or the one before it if something is to be settled."""

    steps: FencedSteps
    finished: FinishedScan
    end: ScanEnd
    default_interval_hours: float

    @retry_when_busy(before_retry=terminate_stalled_writers)
    async def write_last_rows(self) -> Result | ScanSummary:
        """Write the last batch and publish, or return the summary if something is to be settled."""
        await fair_loop().yield_to_interactive()
        with meters.timed_write():
            async with get_job_session(statement_seconds=STEP_SECONDS) as session, session.begin():
                await flush_batch(session, self.finished.batch, scan_id=self.end.scan.id)
                if self.finished.has_unrequested_documents:
                    met_limit = ProblemCode.URL_LIMIT in self.finished.reasons
                    code = UrlLimitReached.code if met_limit else None
                    await close_unfinished(session, self.end.scan.id, code)
                if await self._is_widened(session):
                    return await complete(session, self.steps.claim, {}), {}
                summary = await self._summarise(session)
                if self._needs_settling(summary):
                    await self.steps.fence(session)
                    return summary
                return await self._publish(session, summary, Settled())

    @retry_when_busy(before_retry=terminate_stalled_writers)
    async def publish_settled(self, settled: Settled) -> Result:
        """Publish a scan whose rows are all written."""
        await fair_loop().yield_to_interactive()
        with meters.timed_write():
            async with get_job_session(statement_seconds=STEP_SECONDS) as session, session.begin():
                if await self._is_widened(session):
                    return await complete(session, self.steps.claim, {}), {}
                return await self._publish(session, await self._summarise(session), settled)

    async def _is_widened(self, session: AsyncSession) -> bool:
        """Whether the whole site was requested while the job read only a part of it.

        Its scan is not published then: the next attempt continues it.
        """
        claim = self.steps.claim
        if not claim.is_narrow:
            return False
        return await predict_status(session, claim, JobStatus.COMPLETED) is JobStatus.PENDING

    async def _summarise(self, session: AsyncSession) -> ScanSummary:
        scan = self.end.scan
        return await summarise_scan(session, scan.id, scan.domain_id, MAX_LISTED_SITEMAPS)

    def _needs_settling(self, summary: ScanSummary) -> bool:
        """Whether anything changed or may have vanished; if not, one transaction publishes."""
        may_vanish = self.steps.claim.document is None and summary.unread
        # So many URLs are counted in the final transaction, in a few milliseconds.
        must_count = _must_count(summary) and summary.stored_urls > 20_000
        return bool(
            summary.has_changes
            or summary.has_leftovers
            or summary.missing
            or summary.removals_held_since
            or may_vanish
            or must_count
            or self.end.failure
        )

    async def _publish(
        self, session: AsyncSession, summary: ScanSummary, settled: Settled
    ) -> Result:
        claim, scan, reasons = self.steps.claim, self.end.scan, self.finished.reasons
        is_complete = self.end.is_full and settled.incomplete <= settled.decision.gone.keys()
        is_complete = is_complete and (bool(settled.incomplete) or not summary.incomplete)
        is_baseline = is_complete and not summary.has_baseline
        whole_site = claim.document is None
        events = EventWriter(session, scan.id, scan.domain_id, summary)
        await events.write_document_events(settled.decision, is_baseline=is_baseline)
        origin = self.finished.origin if whole_site else None
        robots = await events.write_domain_events(settled.decision, origin, self.finished.robots)
        publication = Publication(
            scan.id,
            scope=_scope(claim, reasons),
            read=ScanCounts(summary.sitemaps, summary.urls, summary.urls),
            stored=await self._counts(session, summary, settled),
            reasons=reasons,
            changes=settled.changes.by_kind,
            held=settled.decision.held.count if summary.has_baseline else 0,
            is_baseline=is_baseline,
            origin=origin,
            ip=self.finished.ip if whole_site else None,
            has_new_urls=not summary.has_baseline
            or bool(any(settled.changes.by_kind.values()) or robots or summary.new),
        )
        counts_as_scheduled = await publish_scan(
            session,
            publication,
            domain_id=scan.domain_id,
            whole_site=whole_site,
            rescheduling=self._rescheduling(),
        )
        await resolve_findings_of(session, settled.decision.gone)
        # Of a site without a baseline nothing is told, so it can be judged with its URLs, later.
        if summary.has_baseline:
            # What failed before is judged anew, though it may not have changed.
            failed = summary.last_status is not LastScanStatus.COMPLETED
            if whole_site and (summary.reread or settled.decision.gone or robots or failed):
                await self._judge_site(session, publication, robots)
            await announce_findings(session, scan.id, scan.domain_id)
        result = _result(claim, scan, publication, summary.largest)
        if self.finished.skipped_sitemaps is not None:
            result["skipped_sitemaps"] = self.finished.skipped_sitemaps._asdict()
        status = await complete(session, claim, result, counts_as_scheduled=counts_as_scheduled)
        _require_predicted_status(status, JobStatus.COMPLETED)
        await number_scan(session, scan.id)
        return status, result

    async def _judge_site(
        self, session: AsyncSession, publication: Publication, robots: Sequence[RobotsChange]
    ) -> None:
        scan, origin = self.end.scan, self.finished.origin or ""
        own = next((one for one in self.finished.robots if one.url.startswith(origin)), None)
        text = None if own is None else robots_text(own)
        changes = [
            # Long files take longer than other requests can wait.
            await asyncio.to_thread(compare_access, one.before, one.after)
            for one in robots
        ]
        site = await load_stored_site(
            session,
            scan.id,
            scan.domain_id,
            removals_held=publication.held,
            robots=text.content if text else None,
            robots_origin=origin,
            robots_failed=own is not None and own.error_code in ROBOTS_FAILURES,
            robots_truncated=own is not None and own.truncated,
            access=[change for of_file in changes for change in of_file],
        )
        # Without robots.txt, what was said of it stays as it is.
        codes = SITE_RULES - (ROBOTS_RULES if text is None else frozenset())
        if not robots:
            codes -= {OPENED, CLOSED}
        found = judge_stored(site)
        await record_site_findings(
            session, scan.id, scan.domain_id, found, codes, again={OPENED, CLOSED}
        )

    def _rescheduling(self) -> Rescheduling | None:
        """How this scan moves the next scheduled one; None for a scheduled or a narrow scan."""
        claim = self.steps.claim
        if claim.is_narrow or claim.created_by == SYSTEM_USER_ID:
            return None
        met_limit = ProblemCode.URL_LIMIT in self.finished.reasons
        return Rescheduling(claim.max_pages if met_limit else None, self.default_interval_hours)

    async def _counts(
        self, session: AsyncSession, summary: ScanSummary, settled: Settled
    ) -> ScanCounts:
        """The counts of the site. It usually grew by what came and shrank by what left."""
        domain_id, distinct = self.end.scan.domain_id, settled.distinct_urls
        sitemaps, urls = summary.stored_sitemaps, summary.stored_urls
        if summary.returned or settled.decision.gone:
            sitemaps, urls = await count_domain(session, domain_id)
        if sitemaps <= 1:
            distinct = urls
        elif not _must_count(summary) and summary.last_distinct is not None:
            distinct = summary.last_distinct + settled.changes.growth
        elif distinct is None:
            distinct = await count_distinct_urls(session, domain_id, urls)
        return ScanCounts(sitemaps, urls, distinct)


def _must_count(summary: ScanSummary) -> bool:
    """Whether URLs were stored that are not in the feed, so that the change is unknown."""
    known = summary.has_baseline and summary.last_distinct is not None
    return not known or summary.silent > 0


def _scope(claim: Claim, reasons: Collection[str]) -> ScanScope:
    """How much of the site a scan covers: what was requested, or less after the URL limit."""
    if claim.is_narrow or ProblemCode.URL_LIMIT not in reasons:
        return claim.scope
    return ScanScope.FILTERED


def _result(
    claim: Claim, scan: OpenedScan, publication: Publication, largest: list[dict[str, Any]]
) -> dict[str, Any]:
    read = publication.read
    return {
        "domain": scan.domain,
        "max_pages": claim.max_pages,
        "scan_id": scan.id,
        "sitemap_count": read.sitemaps,
        "url_count": read.urls,
        "distinct_url_count": min(read.urls, publication.stored.distinct_urls),
        "partial": bool(publication.reasons),
        "reasons": publication.reasons,
        "changes": publication.changes,
        "sitemaps": largest,
        "sitemaps_truncated": read.sitemaps > len(largest),
    }


@dataclass(frozen=True, slots=True)
class EventWriter:
    """Writes the events of one scan. Without a baseline there are no events of documents."""

    session: AsyncSession
    scan_id: int
    domain_id: UUID
    summary: ScanSummary

    async def write_document_events(self, decision: RemovalDecision, *, is_baseline: bool) -> None:
        """Documents that came, came back or are gone, and baselines."""
        if is_baseline:
            await add_baselines(self.session, self.scan_id)
        elif self.summary.has_baseline and self.summary.silent:
            ids = await report_silent_reads(self.session, self.scan_id, self.domain_id)
            await self._add(FeedEventKind.BASELINE, ids)
        # Afterwards, because a document that is reported now has no silent read to report.
        appeared = await self._appeared_documents()
        left = await mark_gone(self.session, list(decision.gone))
        if self.summary.has_baseline:
            await self._add(FeedEventKind.SITEMAP_ADDED, appeared)
            await self._add_gone(decision.gone, left)

    async def _appeared_documents(self) -> list[UUID]:
        appeared: list[UUID] = []
        if self.summary.returned:
            appeared += await mark_returned(self.session, self.domain_id, self.scan_id)
        if self.summary.new:
            new = await report_new_documents(self.session, self.scan_id)
            appeared += [document for document in new if document not in appeared]
        return appeared

    async def _add_gone(self, gone: Mapping[UUID, RemovalEvidence], left: list[UUID]) -> None:
        for evidence in set(gone.values()):
            ids = [document for document in left if gone[document] is evidence]
            await self._add(FeedEventKind.SITEMAP_GONE, ids, evidence=evidence.value)

    async def write_domain_events(
        self, decision: RemovalDecision, origin: str | None, robots: tuple[RobotsRead, ...]
    ) -> list[RobotsChange]:
        """Held removals, another origin, and another robots.txt; return the changes of the last."""
        changes = []
        new_hold = self.summary.removals_held_since is None and decision.held.count > 0
        if new_hold and self.summary.has_baseline:
            await self._add_of_domain(FeedEventKind.REMOVALS_HELD, decision.held.data())
        before = self.summary.origin
        if origin is not None and before is not None and origin != before:
            addresses = {"before": before, "after": origin}
            await self._add_of_domain(FeedEventKind.ORIGIN_CHANGED, addresses)
        for text in filter(None, map(robots_text, robots)):
            change = await record_robots(self.session, self.domain_id, text)
            if change is not None:
                data = robots_event_data(change, text)
                await self._add_of_domain(FeedEventKind.ROBOTS_CHANGED, data)
                changes.append(change)
        return changes

    async def _add(self, kind: FeedEventKind, ids: list[UUID], **data: str) -> None:
        await add_document_events(self.session, self.scan_id, kind, ids, data)

    async def _add_of_domain(self, kind: FeedEventKind, data: Mapping[str, object]) -> None:
        await add_domain_event(self.session, self.scan_id, self.domain_id, kind, data)


def robots_text(event: RobotsRead) -> RobotsText | None:
    """The text of a robots.txt that was read; None if it could not be read."""
    # By RFC 9309 the site then has no robots.txt.
    missing = event.http_status in range(400, 500)
    content = "" if missing else event.text
    if content is None or event.error_code is not None:
        return None
    try:
        origin = parse_url(event.url).origin
    except AddressError:
        return None
    return RobotsText(origin, storable(content, 1_000_000), event.http_status, event.truncated)


def robots_event_data(change: RobotsChange, text: RobotsText) -> dict[str, Any]:
    """The data of a `robots_changed` event."""
    before, after = change.before.splitlines(), text.content.splitlines()
    data: dict[str, Any] = {
        "origin": text.origin,
        "lines_before": len(before),
        "lines_after": len(after),
        "http_status_before": change.http_status_before,
        "http_status": text.http_status,
    }
    # Comparing takes time that grows faster than the number of lines; no event waits long for it.
    if max(len(before), len(after)) > 2_000:
        return data | {"diff": None, "diff_truncated": True}
    lines = list(unified_diff(before, after, "before", "after", n=1, lineterm=""))
    diff = "\n".join(lines[:MAX_DIFF_LINES])
    is_cut = len(lines) > MAX_DIFF_LINES or len(diff) > MAX_DIFF_CHARS
    return data | {"diff": diff[:MAX_DIFF_CHARS], "diff_truncated": is_cut}


@retry_when_busy
async def record_failure(claim: Claim, *, code: str, message: str, transient: bool) -> JobStatus:
    """Record in a separate session that the attempt failed."""
    outcome = outcome_of_failure(claim, transient=transient)
    async with get_job_session() as session, session.begin():
        expected = await predict_status(session, claim, outcome)
        site = claim.domain_id if claim.document is None else None
        await end_scan_with_job(session, claim.id, site, expected, code)
        status = await fail(session, claim, code=code, message=message, transient=transient)
        _require_predicted_status(status, expected)
        await announce_failed_job(session, claim.id, site, status, code)
        return status


@retry_when_busy
async def record_cancellation(claim: Claim) -> None:
    """Record in a separate session that the job was cancelled."""
    async with get_job_session() as session, session.begin():
        await predict_status(session, claim, JobStatus.CANCELLED)
        await end_scan(session, claim.id, ScanState.CANCELLED, None)
        await cancel_running(session, claim)


@retry_when_busy
async def return_to_queue(
    claim: Claim, *, pause_seconds: float = 0, snooze: bool = False, reason: str = "released"
) -> JobStatus | None:
    """Return the job to the queue with its attempt refunded; None if not the claim holder."""
    try:
        async with get_job_session() as session, session.begin():
            expected = await predict_status(session, claim, JobStatus.PENDING)
            await end_scan_with_job(session, claim.id, claim.domain_id, expected, None)
            status = await release(
                session, claim, pause_seconds=pause_seconds, snooze=snooze, reason=reason
            )
            return _require_predicted_status(status, expected)
    except LeaseLost:
        return None


def _require_predicted_status(status: JobStatus, expected: JobStatus) -> JobStatus:
    """Raise DatabaseBusy, to retry the transaction, if the job got another status than its scan."""
    if status is not expected:
        raise DatabaseBusy
    return status


async def end_scan_with_job(
    session: AsyncSession, job_id: int, domain_id: UUID | None, status: JobStatus, code: str | None
) -> None:
    """When a job reaches its final status unpublished, end its scan and record a failure."""
    if status is JobStatus.CANCELLED:
        await end_scan(session, job_id, ScanState.CANCELLED, None)
    elif status is JobStatus.FAILED:
        await end_scan(session, job_id, ScanState.FAILED, code)
        if domain_id is not None and code is not None:
            await record_domain_failure(session, domain_id, code)


async def announce_failed_job(
    session: AsyncSession, job_id: int, domain_id: UUID | None, status: JobStatus, code: str | None
) -> None:
    """When a job failed for good, tell of it in the feed if its site is watched.

    Takes a number of the feed: the transaction should end with this.
    """
    if status is JobStatus.FAILED and domain_id is not None and code is not None:
        await announce_failure(session, domain_id, job_id, code)


@retry_when_busy
async def count_releases_with_own_session(claim: Claim, reasons: Collection[str]) -> int:
    """For the processor: how many attempts in a row were released for one of these reasons."""
    async with get_job_session() as session, session.begin():
        return await count_releases(session, claim.id, reasons)


@retry_when_busy
async def count_snoozes_with_own_session(claim: Claim) -> int:
    """For the processor: how many times the job was snoozed since a document of it was read."""
    async with get_job_session() as session, session.begin():
        return await count_snoozes(session, claim)
