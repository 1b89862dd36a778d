"""What scans leave on the row of their site: its origin, its counters, how the last scan ended."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from sqlalchemy import bindparam, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import LastScanStatus, SitemapStatus
from siteatlas.storage.statements.scans import ScanCounts
from siteatlas.storage.tables import DOMAINS, SITEMAPS

# Statements of every scan are made once: making one costs as much as running it.
COUNT_DOMAIN = select(
    func.count().filter(
        or_(SITEMAPS.c.status == SitemapStatus.COMPLETED, SITEMAPS.c.url_count > 0)
    ),
    func.coalesce(func.sum(SITEMAPS.c.url_count), 0),
).where(SITEMAPS.c.domain_id == bindparam("domain"))
RECORDED_COUNTS = select(
    DOMAINS.c.sitemap_count, DOMAINS.c.url_count, DOMAINS.c.distinct_url_count
).where(DOMAINS.c.id == bindparam("of_domain"))
_CHANGE = update(DOMAINS).where(DOMAINS.c.id == bindparam("of_domain"))
RECORD_ORIGIN = _CHANGE.values(origin=bindparam("answered_at"))
RECORD_COUNTS = _CHANGE.values(
    sitemap_count=bindparam("sitemaps"),
    url_count=bindparam("urls"),
    distinct_url_count=bindparam("distinct_urls"),
    updated_at=func.now(),
)
CORRECT_COUNTS = RECORD_COUNTS.where(
    DOMAINS.c.sitemap_count == bindparam("old_sitemaps"),
    DOMAINS.c.url_count == bindparam("old_urls"),
    DOMAINS.c.distinct_url_count == bindparam("old_distinct_urls"),
)
RECORD_SUCCESS = RECORD_COUNTS.values(
    last_scan_at=func.now(),
    last_scan_status=bindparam("ended"),
    last_error_code=None,
    failures_in_a_row=0,
    origin=func.coalesce(bindparam("answered_at", type_=DOMAINS.c.origin.type), DOMAINS.c.origin),
)
RECORD_FAILURE = _CHANGE.values(
    last_scan_at=func.now(),
    last_scan_status=LastScanStatus.FAILED,
    last_error_code=bindparam("code"),
    failures_in_a_row=DOMAINS.c.failures_in_a_row + 1,
    updated_at=func.now(),
)


async def record_origin(session: AsyncSession, domain_id: UUID, origin: str) -> None:
    """Note which origin answers for a site."""
    await session.execute(RECORD_ORIGIN, {"of_domain": domain_id, "answered_at": origin})


async def count_domain(session: AsyncSession, domain_id: UUID) -> tuple[int, int]:
    """The readable documents of a site, and their URLs."""
    count, urls = (await session.execute(COUNT_DOMAIN, {"domain": domain_id})).one()
    return count, int(urls)


async def record_domain_success(
    session: AsyncSession,
    domain_id: UUID,
    counts: ScanCounts,
    *,
    partial: bool,
    origin: str | None = None,
) -> None:
    """Put the counters of a published scan on its site, and the origin that answered, if new."""
    status = LastScanStatus.PARTIAL if partial else LastScanStatus.COMPLETED
    values = {"of_domain": domain_id, "ended": status, "answered_at": origin}
    await session.execute(RECORD_SUCCESS, values | asdict(counts))


async def record_domain_counts(session: AsyncSession, domain_id: UUID, counts: ScanCounts) -> None:
    """Put new counters on a site of which one document was read; how its scans end stays."""
    await session.execute(RECORD_COUNTS, {"of_domain": domain_id} | asdict(counts))


async def recorded_domain_counts(session: AsyncSession, domain_id: UUID) -> ScanCounts:
    """The counters of a site as its record says."""
    row = (await session.execute(RECORDED_COUNTS, {"of_domain": domain_id})).one_or_none()
    return ScanCounts(*row) if row else ScanCounts(0, 0, 0)


async def correct_domain_counts(
    session: AsyncSession, domain_id: UUID, counts: ScanCounts, *, instead_of: ScanCounts
) -> None:
    """Update the counters of a site, unless they have been changed concurrently."""
    old = {f"old_{name}": number for name, number in asdict(instead_of).items()}
    await session.execute(CORRECT_COUNTS, {"of_domain": domain_id} | asdict(counts) | old)


async def record_domain_failure(session: AsyncSession, domain_id: UUID, error_code: str) -> None:
    """Note on a site that its scan failed for good; the counters stay those of the last one."""
    await session.execute(RECORD_FAILURE, {"of_domain": domain_id, "code": error_code})
