"""The end of a scan: published with its counters, or recorded as failed, in one transaction.

The job is written last: its row is locked only briefly, and a worker that has lost the job rolls
back everything that it wrote before. `recount` updates the counters after an unpublished scan.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import DatabaseBusy, LeaseLost
from siteatlas.meters import meters
from siteatlas.processor.batch_writer import FinishedScan
from siteatlas.processor.documents import OpenedScan
from siteatlas.processor.stalled_writers import terminate_stalled_writers
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
from siteatlas.storage.models import JobStatus, ScanState
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import AsyncSession, get_job_session
from siteatlas.storage.statements.domain_results import (
    Publication,
    publish_scan,
    record_domain_failure,
)
from siteatlas.storage.statements.scan_summary import ScanSummary, summarise_scan
from siteatlas.storage.statements.scans import ScanCounts, end_scan
from siteatlas.storage.statements.unfinished import close_unfinished
from siteatlas.storage.statements.urls import count_distinct_urls
from siteatlas.storage.statements.write_batch import flush_batch

MAX_LISTED_SITEMAPS = 100
PUBLICATION_SECONDS = 300


@retry_when_busy(before_retry=terminate_stalled_writers)
async def publish(
    claim: Claim, scan: OpenedScan, finished: FinishedScan
) -> tuple[JobStatus, dict[str, Any]]:
    """Write the last rows, the counters and the status in one transaction.

    Return the status and the result of the job.
    """
    await fair_loop().yield_to_interactive()
    with meters.timed_write():
        async with (
            get_job_session(statement_seconds=PUBLICATION_SECONDS) as session,
            session.begin(),
        ):
            counts, largest = await _publish_scan(session, claim, scan, finished)
            result = _result(claim, scan, counts, finished.reasons, largest)
            return await complete(session, claim, result), result


async def _publish_scan(
    session: AsyncSession, claim: Claim, scan: OpenedScan, finished: FinishedScan
) -> tuple[ScanCounts, list[dict[str, Any]]]:
    """The counts of the scan, and its largest sitemaps."""
    await flush_batch(session, finished.batch, scan_id=scan.id)
    if finished.has_unrequested_documents:
        await close_unfinished(session, scan.id, None)
    summary = await summarise_scan(session, scan.id, scan.domain_id, MAX_LISTED_SITEMAPS)
    stored = await _site_counts_to_publish(session, scan.domain_id, summary)
    counts = ScanCounts(summary.sitemaps, summary.urls, min(summary.urls, stored.distinct_urls))
    await publish_scan(
        session,
        Publication(scan.id, counts, finished.reasons, finished.batch.origin),
        stored,
        domain_id=scan.domain_id,
        whole_site=claim.document is None,
    )
    return counts, summary.largest


async def _site_counts_to_publish(
    session: AsyncSession, domain_id: UUID, summary: ScanSummary
) -> ScanCounts:
    """The counts of the whole site that a job publishes with its scan.

    Distinct URLs are counted only if there are several documents: each lists a URL once.
    """
    distinct = summary.stored_urls
    if summary.stored_sitemaps > 1:
        distinct = await count_distinct_urls(session, domain_id)
    return ScanCounts(summary.stored_sitemaps, summary.stored_urls, distinct)


def _result(
    claim: Claim,
    scan: OpenedScan,
    counts: ScanCounts,
    reasons: list[str],
    largest: list[dict[str, Any]],
) -> dict[str, Any]:
    """The `result_data` of a job whose scan is published."""
    return {
        "domain": scan.domain,
        "max_pages": claim.max_pages,
        "scan_id": scan.id,
        "sitemap_count": counts.sitemaps,
        "url_count": counts.urls,
        "distinct_url_count": counts.distinct_urls,
        "partial": bool(reasons),
        "reasons": reasons,
        "sitemaps": largest,
        "sitemaps_truncated": counts.sitemaps > len(largest),
    }


@retry_when_busy
async def record_failure(claim: Claim, *, code: str, message: str, transient: bool) -> JobStatus:
    """Record in a separate session that the attempt failed."""
    outcome = outcome_of_failure(claim, transient=transient)
    async with get_job_session() as session, session.begin():
        expected = await predict_status(session, claim, outcome)
        site = claim.domain_id if claim.document is None else None
        await end_scan_with_job(session, claim.id, site, expected, code)
        status = await fail(session, claim, code=code, message=message, transient=transient)
        return _require_predicted_status(status, expected)


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
