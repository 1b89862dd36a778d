"""Write statements on scans: open or continue one, publish it, or note how it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import DatabaseBusy, JobCancelled, LeaseLost
from siteatlas.storage.models import (
    Domain,
    Job,
    Scan,
    ScanState,
    SitemapScan,
    SitemapScanState,
)
from siteatlas.storage.models.scan import PUBLISHED_SEQUENCE
from siteatlas.storage.statements.bulk import table_of
from siteatlas.storage.statements.unfinished import close_unfinished

DONE = (SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED)


# Statements of every scan are made once: making one costs as much as running it.
JOBS, SCANS, DOMAINS = table_of(Job), table_of(Scan), table_of(Domain)
_OF_JOB = select(
    JOBS.c.id,
    JOBS.c.job_id,
    bindparam("of_domain", type_=SCANS.c.domain_id.type),
    JOBS.c.created_by,
    bindparam("most", type_=SCANS.c.max_pages.type),
).where(JOBS.c.id == bindparam("of_job"))
OPEN_NEW = (
    insert(SCANS)
    .from_select(["job_id", "job_uuid", "domain_id", "created_by", "max_pages"], _OF_JOB)
    .on_conflict_do_nothing(index_elements=[SCANS.c.job_id])
    .returning(SCANS.c.id)
)
PUBLISH = (
    update(SCANS)
    .where(SCANS.c.id == bindparam("of_scan"))
    .values(
        state=ScanState.PUBLISHED,
        partial=bindparam("is_partial", type_=SCANS.c.partial.type),
        reasons=bindparam("why", type_=SCANS.c.reasons.type),
        sitemap_count=bindparam("sitemaps"),
        url_count=bindparam("urls"),
        distinct_url_count=bindparam("distinct_urls"),
        finished_at=func.now(),
        published_seq=PUBLISHED_SEQUENCE.next_value(),
    )
)
NOTE_COUNTS = (
    update(DOMAINS)
    .where(DOMAINS.c.id == bindparam("of_domain"))
    .values(
        sitemap_count=bindparam("sitemaps"),
        url_count=bindparam("urls"),
        distinct_url_count=bindparam("distinct_urls"),
        updated_at=func.now(),
    )
)
NOTE_SUCCESS = (
    update(DOMAINS)
    .where(DOMAINS.c.id == bindparam("of_domain"))
    .values(
        last_scan_at=func.now(),
        last_scan_status=bindparam("ended"),
        last_error_code=None,
        failures_in_a_row=0,
        sitemap_count=bindparam("sitemaps"),
        url_count=bindparam("urls"),
        distinct_url_count=bindparam("distinct_urls"),
        origin=func.coalesce(
            bindparam("answered_at", type_=DOMAINS.c.origin.type), DOMAINS.c.origin
        ),
        updated_at=func.now(),
    )
)


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """What a scan found, counted from its rows."""

    sitemaps: int
    urls: int
    distinct_urls: int


async def open_scan(
    session: AsyncSession,
    *,
    job_id: int,
    domain_id: UUID,
    max_pages: int | None,
) -> tuple[int, bool]:
    """The scan of a job and whether an earlier attempt left work to continue.

    One that had ended (its job was retried) starts over. Whether the job is still ours is for the
    caller to ask, at the end of the transaction: a lock on the job would stop its heartbeat.
    """
    values = {"of_job": job_id, "of_domain": domain_id, "most": max_pages}
    scan_id = (await session.execute(OPEN_NEW, values)).scalar()
    if scan_id is not None:
        return scan_id, False
    statement = select(Scan.id, Scan.state).where(Scan.job_id == job_id)
    scan = (await session.execute(statement)).one_or_none()
    if scan is None:
        raise LeaseLost  # the job is gone
    if scan.state == ScanState.RUNNING:
        return scan.id, True
    await _start_over(session, scan.id)
    return scan.id, False


async def _start_over(session: AsyncSession, scan_id: int) -> None:
    restarted = await session.execute(
        update(Scan)
        .where(Scan.id == scan_id)
        .values(
            state=ScanState.RUNNING,
            partial=False,
            reasons=[],
            error_code=None,
            started_at=func.now(),
            finished_at=None,
        )
        .returning(Scan.id)
        .execution_options(synchronize_session=False)
    )
    if restarted.scalar() is None:
        raise DatabaseBusy  # retention removed it meanwhile; the next try opens a new one
    await session.execute(
        update(SitemapScan)
        .where(SitemapScan.scan_id == scan_id)
        .values(state=SitemapScanState.PENDING, error_code=None, http_status=None)
        .execution_options(synchronize_session=False)
    )


async def publish_scan(
    session: AsyncSession, scan_id: int, counts: ScanCounts, reasons: Sequence[str]
) -> None:
    """Make the scan the one that readers see."""
    values = {"of_scan": scan_id, "is_partial": bool(reasons), "why": list(reasons)}
    await session.execute(PUBLISH, values | asdict(counts))


async def end_scan(
    session: AsyncSession, job_id: int, state: ScanState, error_code: str | None
) -> None:
    """Note that the running scan of a job ended without being published, and close its rows."""
    ended = await session.execute(
        update(Scan)
        .where(Scan.job_id == job_id, Scan.state == ScanState.RUNNING)
        .values(state=state, error_code=error_code, finished_at=func.now())
        .returning(Scan.id)
        .execution_options(synchronize_session=False)
    )
    scan_id = ended.scalar()
    if scan_id is not None:
        await close_unfinished(session, scan_id, error_code or JobCancelled.code)


async def record_domain_success(
    session: AsyncSession,
    domain_id: UUID,
    counts: ScanCounts,
    *,
    partial: bool,
    origin: str | None = None,
) -> None:
    """Put the counters of a published scan on its site, and the origin that answered, if new."""
    status = "partial" if partial else "completed"
    values = {"of_domain": domain_id, "ended": status, "answered_at": origin}
    await session.execute(NOTE_SUCCESS, values | asdict(counts))


async def record_domain_counts(session: AsyncSession, domain_id: UUID, counts: ScanCounts) -> None:
    """Put new counters on a site of which one document was read; how its scans end stays."""
    await session.execute(NOTE_COUNTS, {"of_domain": domain_id} | asdict(counts))


async def scanned_domain(session: AsyncSession, job_id: int) -> UUID | None:
    """The site that a job has begun to scan."""
    return await session.scalar(select(Scan.domain_id).where(Scan.job_id == job_id))


async def recorded_domain_counts(session: AsyncSession, domain_id: UUID) -> ScanCounts:
    """The counters of a site as its record says."""
    counters = (Domain.sitemap_count, Domain.url_count, Domain.distinct_url_count)
    row = (await session.execute(select(*counters).where(Domain.id == domain_id))).one_or_none()
    return ScanCounts(*row) if row else ScanCounts(0, 0, 0)


async def correct_domain_counts(
    session: AsyncSession, domain_id: UUID, counts: ScanCounts, *, instead_of: ScanCounts
) -> None:
    """Put new counters on a site, unless somebody else has changed the given ones."""
    unchanged = NOTE_COUNTS.where(
        DOMAINS.c.sitemap_count == instead_of.sitemaps,
        DOMAINS.c.url_count == instead_of.urls,
        DOMAINS.c.distinct_url_count == instead_of.distinct_urls,
    )
    await session.execute(unchanged, {"of_domain": domain_id} | asdict(counts))


async def record_domain_failure(session: AsyncSession, domain_id: UUID, error_code: str) -> None:
    """Note on a site that its scan failed for good; the counters stay those of the last one."""
    await session.execute(
        update(Domain)
        .where(Domain.id == domain_id)
        .values(
            last_scan_at=func.now(),
            last_scan_status="failed",
            last_error_code=error_code,
            failures_in_a_row=Domain.failures_in_a_row + 1,
            updated_at=func.now(),
        )
        .execution_options(synchronize_session=False)
    )
