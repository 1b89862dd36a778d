"""What scans leave on the row of their site: its origin, its counters, how the last scan ended.

A scan is published together with that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import LastScanStatus, SitemapStatus
from siteatlas.storage.statements.scans import PUBLISH, ScanCounts
from siteatlas.storage.tables import DOMAINS, SITEMAPS

# Statements of every scan are made once: making one costs as much as running it.
COUNT_DOMAIN = select(
    func.count()
    .filter(or_(SITEMAPS.c.status == SitemapStatus.COMPLETED, SITEMAPS.c.url_count > 0))
    .label("sitemaps"),
    func.coalesce(func.sum(SITEMAPS.c.url_count), 0).label("urls"),
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
# Joined, so that the row of the scan is written, and locked, before that of its site.
_PUBLISHED = PUBLISH.cte("published")
PUBLISH_AND_RECORD_COUNTS = RECORD_COUNTS.where(DOMAINS.c.id == _PUBLISHED.c.domain_id)
PUBLISH_AND_RECORD_SUCCESS = RECORD_SUCCESS.where(DOMAINS.c.id == _PUBLISHED.c.domain_id)
RECORD_FAILURE = _CHANGE.values(
    last_scan_at=func.now(),
    last_scan_status=LastScanStatus.FAILED,
    last_error_code=bindparam("code"),
    failures_in_a_row=DOMAINS.c.failures_in_a_row + 1,
    updated_at=func.now(),
)


@dataclass(frozen=True, slots=True)
class Publication:
    """What a scan found, why it is partial, if it is, and the origin that answered, if new."""

    scan_id: int
    counts: ScanCounts
    reasons: list[str]
    origin: str | None

    def values(self) -> dict[str, Any]:
        """The values of `PUBLISH`."""
        read = {f"read_{name}": number for name, number in asdict(self.counts).items()}
        own = {"of_scan": self.scan_id, "is_partial": bool(self.reasons), "why": self.reasons}
        return own | read


async def record_origin(session: AsyncSession, domain_id: UUID, origin: str) -> None:
    """Record which origin responds for a site."""
    await session.execute(RECORD_ORIGIN, {"of_domain": domain_id, "answered_at": origin})


async def count_domain(session: AsyncSession, domain_id: UUID) -> tuple[int, int]:
    """The readable documents of a site, and their URLs."""
    count, urls = (await session.execute(COUNT_DOMAIN, {"domain": domain_id})).one()
    return count, int(urls)


async def publish_scan(
    session: AsyncSession,
    publication: Publication,
    stored: ScanCounts,
    *,
    domain_id: UUID,
    whole_site: bool = True,
) -> None:
    """Publish a scan: readers see it from now on, and its site gets the new counters.

    The site also learns how the scan ended and which origin answered, if it was a scan of the
    whole site: one of a single document says nothing on that.
    """
    values = publication.values() | {"of_domain": domain_id} | asdict(stored)
    if not whole_site:
        await session.execute(PUBLISH_AND_RECORD_COUNTS, values)
        return
    status = LastScanStatus.PARTIAL if publication.reasons else LastScanStatus.COMPLETED
    values |= {"ended": status, "answered_at": publication.origin}
    await session.execute(PUBLISH_AND_RECORD_SUCCESS, values)


async def recorded_domain_counts(session: AsyncSession, domain_id: UUID) -> ScanCounts:
    """The counters stored in the row of a site."""
    row = (await session.execute(RECORDED_COUNTS, {"of_domain": domain_id})).one_or_none()
    return ScanCounts(*row) if row else ScanCounts(0, 0, 0)


async def correct_domain_counts(
    session: AsyncSession, domain_id: UUID, counts: ScanCounts, *, instead_of: ScanCounts
) -> None:
    """Update the counters of a site, unless they have been changed concurrently."""
    old = {f"old_{name}": number for name, number in asdict(instead_of).items()}
    await session.execute(CORRECT_COUNTS, {"of_domain": domain_id} | asdict(counts) | old)


async def record_domain_failure(session: AsyncSession, domain_id: UUID, error_code: str) -> None:
    """Record that the scan of a site failed permanently; its counters remain unchanged."""
    await session.execute(RECORD_FAILURE, {"of_domain": domain_id, "code": error_code})
