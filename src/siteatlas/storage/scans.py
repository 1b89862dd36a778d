"""Write statements on scans: open or continue one, publish it, or note how it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import Domain, Scan, ScanState, SitemapScan, SitemapScanState
from siteatlas.storage.models.scan import PUBLISHED_SEQUENCE

DONE = (SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED)


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
    job_uuid: UUID,
    domain_id: UUID,
    created_by: UUID,
    max_pages: int | None,
) -> tuple[int, bool]:
    """The scan of a job and whether an earlier attempt left work to continue.

    A scan that had ended (its job was retried by hand) starts over.
    """
    statement = (
        insert(Scan)
        .values(
            job_id=job_id,
            job_uuid=job_uuid,
            domain_id=domain_id,
            created_by=created_by,
            max_pages=max_pages,
        )
        .on_conflict_do_nothing(index_elements=[Scan.job_id])
        .returning(Scan.id)
    )
    scan_id = (await session.execute(statement)).scalar()
    if scan_id is not None:
        return scan_id, False
    scan = (await session.execute(select(Scan).where(Scan.job_id == job_id))).scalar_one()
    if scan.state == ScanState.RUNNING:
        return scan.id, True
    await _start_over(session, scan.id)
    return scan.id, False


async def _start_over(session: AsyncSession, scan_id: int) -> None:
    await session.execute(
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
        .execution_options(synchronize_session=False)
    )
    await session.execute(
        update(SitemapScan)
        .where(SitemapScan.scan_id == scan_id)
        .values(state=SitemapScanState.PENDING, error_code=None)
        .execution_options(synchronize_session=False)
    )


async def publish_scan(
    session: AsyncSession, scan_id: int, counts: ScanCounts, reasons: Sequence[str]
) -> None:
    """Make the scan the one that readers see."""
    await session.execute(
        update(Scan)
        .where(Scan.id == scan_id)
        .values(
            state=ScanState.PUBLISHED,
            partial=bool(reasons),
            reasons=list(reasons),
            sitemap_count=counts.sitemaps,
            url_count=counts.urls,
            distinct_url_count=counts.distinct_urls,
            finished_at=func.now(),
            published_seq=PUBLISHED_SEQUENCE.next_value(),
        )
        .execution_options(synchronize_session=False)
    )


async def end_scan(
    session: AsyncSession, job_id: int, state: ScanState, error_code: str | None
) -> None:
    """Note that the running scan of a job ended without being published."""
    await session.execute(
        update(Scan)
        .where(Scan.job_id == job_id, Scan.state == ScanState.RUNNING)
        .values(state=state, error_code=error_code, finished_at=func.now())
        .execution_options(synchronize_session=False)
    )


async def lock_domain(session: AsyncSession, domain_id: UUID) -> None:
    """Lock a site before its job, the order in which submitting locks too: no ring can form."""
    await session.execute(
        select(Domain.id).where(Domain.id == domain_id).with_for_update(key_share=True)
    )


async def record_domain_success(
    session: AsyncSession, domain_id: UUID, counts: ScanCounts, *, partial: bool
) -> None:
    """Put the counters of a published scan on its site."""
    await session.execute(
        update(Domain)
        .where(Domain.id == domain_id)
        .values(
            last_scan_at=func.now(),
            last_scan_status="partial" if partial else "completed",
            last_error_code=None,
            failures_in_a_row=0,
            sitemap_count=counts.sitemaps,
            url_count=counts.urls,
            distinct_url_count=counts.distinct_urls,
            updated_at=func.now(),
        )
        .execution_options(synchronize_session=False)
    )


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
