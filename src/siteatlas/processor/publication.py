"""The end of a scan: published with its counters, or noted as failed, in one transaction each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from siteatlas.errors import DatabaseError, LeaseLost
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.processor.clearance import end_stalled_copies
from siteatlas.processor.opened_scan import OpenedScan
from siteatlas.processor.recorder import Recorder
from siteatlas.queue.attempts import count_releases
from siteatlas.queue.claims import Claim
from siteatlas.queue.endings import cancel_running, complete, count_snoozes, fail, release
from siteatlas.queue.statuses import FINAL
from siteatlas.storage.models import JobStatus, ScanState
from siteatlas.storage.portions import Portion, write_portion
from siteatlas.storage.repetition import repeat_when_busy
from siteatlas.storage.scans import (
    ScanCounts,
    end_scan,
    lock_domain,
    publish_scan,
    record_domain_counts,
    record_domain_failure,
    record_domain_success,
    recorded_domain_counts,
)
from siteatlas.storage.session import AsyncSession, get_job_session
from siteatlas.storage.sitemaps import count_domain, summarise_scan
from siteatlas.storage.unfinished import close_unfinished
from siteatlas.storage.urls import count_distinct_urls
from siteatlas.turns import turns

log = get_logger("processor")

SUMMARISED_SITEMAPS = 100
PUBLICATION_SECONDS = 300


async def publish(claim: Claim, scan: OpenedScan, recorder: Recorder) -> dict[str, Any]:
    """Write the last rows, the counters and the final status in one transaction."""
    portion = await recorder.finish()
    await turns().people_first()
    with meters.timed_write():
        result = await repeat_when_busy(
            lambda: _publish(claim, scan, recorder, portion), clear_way=end_stalled_copies
        )
    recorder.settle(portion)
    return result


async def _publish(
    claim: Claim, scan: OpenedScan, recorder: Recorder, portion: Portion
) -> dict[str, Any]:
    async with (
        get_job_session(statement_seconds=PUBLICATION_SECONDS) as session,
        session.begin(),
    ):
        await write_portion(session, portion, scan_id=scan.id)
        if recorder.has_unasked:
            await close_unfinished(session, scan.id, None)
        sitemaps, urls, largest = await summarise_scan(session, scan.id, SUMMARISED_SITEMAPS)
        stored = await count_domain(session, scan.domain_id)
        distinct = (
            await count_distinct_urls(session, scan.domain_id) if stored[0] > 1 else stored[1]
        )
        counts = ScanCounts(sitemaps, urls, min(urls, distinct))
        await publish_scan(session, scan.id, counts, recorder.reasons)
        await _note_on_site(
            session,
            claim,
            scan,
            reasons=recorder.reasons,
            stored=ScanCounts(*stored, distinct),
            origin=portion.origin,
        )
        result = _result(claim, scan, counts, recorder.reasons, largest)
        await complete(session, claim, result)
        return result


async def _note_on_site(
    session: AsyncSession,
    claim: Claim,
    scan: OpenedScan,
    *,
    reasons: list[str],
    stored: ScanCounts,
    origin: str | None,
) -> None:
    """A scan of one document says nothing on the site but how much is stored of it."""
    if claim.document is not None:
        await record_domain_counts(session, scan.domain_id, stored)
        return
    await record_domain_success(
        session,
        scan.domain_id,
        stored,
        partial=bool(reasons),
        origin=origin,
    )


def _result(
    claim: Claim,
    scan: OpenedScan,
    counts: ScanCounts,
    reasons: list[str],
    largest: list[dict[str, Any]],
) -> dict[str, Any]:
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


async def record_failure(claim: Claim, *, code: str, message: str, transient: bool) -> JobStatus:
    """Note that the attempt failed, in a session of its own."""
    status = await repeat_when_busy(
        lambda: _record_failure(claim, code=code, message=message, transient=transient)
    )
    await _recount_site(claim, status)
    return status


async def _record_failure(claim: Claim, *, code: str, message: str, transient: bool) -> JobStatus:
    async with get_job_session() as session, session.begin():
        if claim.domain_id is not None:
            await lock_domain(session, claim.domain_id)
        status = await fail(session, claim, code=code, message=message, transient=transient)
        site = claim.domain_id if claim.document is None else None
        await _end_scan(session, claim.id, site, status, code)
        return status


async def record_cancellation(claim: Claim) -> None:
    """Note that the job stopped because it was asked to."""
    await repeat_when_busy(lambda: _record_cancellation(claim))
    await _recount_site(claim, JobStatus.CANCELLED)


async def _record_cancellation(claim: Claim) -> None:
    async with get_job_session() as session, session.begin():
        await cancel_running(session, claim)
        await end_scan(session, claim.id, ScanState.CANCELLED, None)


async def give_back(
    claim: Claim, *, pause_seconds: float = 0, snooze: bool = False, reason: str = "released"
) -> JobStatus | None:
    """Return the job to the queue with its attempt refunded; None when it is no longer ours."""

    async def released() -> JobStatus:
        async with get_job_session() as session, session.begin():
            status = await release(
                session, claim, pause_seconds=pause_seconds, snooze=snooze, reason=reason
            )
            await _end_scan(session, claim.id, claim.domain_id, status, None)
            return status

    try:
        status = await repeat_when_busy(released)
    except LeaseLost:
        return None
    await _recount_site(claim, status)
    return status


async def _recount_site(claim: Claim, status: JobStatus) -> None:
    """Bring the counters of a site in line with its rows after a scan that was not published.

    In a transaction of its own: counting a large site must not hold up the end of its job.
    """
    if claim.domain_id is None or status not in FINAL:
        return
    try:
        async with (
            get_job_session(statement_seconds=PUBLICATION_SECONDS) as session,
            session.begin(),
        ):
            await _recount(session, claim.domain_id)
    except DatabaseError as error:
        log.warning("site_not_recounted", reason=error.code)


async def _recount(session: AsyncSession, domain_id: UUID) -> None:
    sitemaps, urls = await count_domain(session, domain_id)
    if (sitemaps, urls) == await recorded_domain_counts(session, domain_id):
        return
    distinct = await count_distinct_urls(session, domain_id) if sitemaps > 1 else urls
    await record_domain_counts(session, domain_id, ScanCounts(sitemaps, urls, distinct))


async def times_put_off(claim: Claim, reasons: Collection[str]) -> int:
    """How many times in a row the job was given back for one of these reasons."""

    async def counted() -> int:
        async with get_job_session() as session, session.begin():
            return await count_releases(session, claim.id, reasons)

    return await repeat_when_busy(counted)


async def times_snoozed(claim: Claim) -> int:
    """How many times the site has put the job off since a document of it was read."""

    async def counted() -> int:
        async with get_job_session() as session, session.begin():
            return await count_snoozes(session, claim)

    return await repeat_when_busy(counted)


async def note_ended_job(
    session: AsyncSession, job_id: int, domain_id: UUID | None, status: JobStatus, code: str | None
) -> None:
    """Bring scan and site in line with a job that somebody else ended."""
    await _end_scan(session, job_id, domain_id, status, code)


async def _end_scan(
    session: AsyncSession, job_id: int, domain_id: UUID | None, status: JobStatus, code: str | None
) -> None:
    if status is JobStatus.CANCELLED:
        await end_scan(session, job_id, ScanState.CANCELLED, None)
    elif status is JobStatus.FAILED:
        await end_scan(session, job_id, ScanState.FAILED, code)
        if domain_id is not None and code is not None:
            await record_domain_failure(session, domain_id, code)
