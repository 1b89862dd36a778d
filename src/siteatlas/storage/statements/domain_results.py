"""What scans leave on the row of their site: its origin, its counters, how the last scan ended.

A scan is published together with that, and with the time of the next one if it was not scheduled.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, Double, bindparam, case, func, null, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import LastScanStatus, ScanScope, SitemapStatus
from siteatlas.storage.statements.domains import DEFAULT_INTERVAL_HOURS, hours_from_now
from siteatlas.storage.statements.scans import PUBLISH, ScanCounts
from siteatlas.storage.tables import DOMAINS, SITEMAPS

# Statements of every scan are made once: making one costs as much as running it.
COUNTS = (
    func.count()
    .filter(
        or_(SITEMAPS.c.status == SitemapStatus.COMPLETED, SITEMAPS.c.url_count > 0),
        SITEMAPS.c.gone_at.is_(None),
    )
    .label("sitemaps"),
    func.coalesce(func.sum(SITEMAPS.c.url_count), 0).label("urls"),
)
COUNT_DOMAIN = select(*COUNTS).where(SITEMAPS.c.domain_id == bindparam("domain"))
RECORDED_COUNTS = select(
    DOMAINS.c.sitemap_count, DOMAINS.c.url_count, DOMAINS.c.distinct_url_count
).where(DOMAINS.c.id == bindparam("of_domain"))
_CHANGE = update(DOMAINS).where(DOMAINS.c.id == bindparam("of_domain"))
# A change of the origin is recorded with the scan that reports it.
RECORD_FIRST_ORIGIN = _CHANGE.where(DOMAINS.c.origin.is_(None)).values(
    origin=bindparam("answered_at")
)
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
_STOPPED_AT = bindparam("stopped_at", type_=DOMAINS.c.max_pages.type)
_COUNTS_AS_SCHEDULED = (
    DOMAINS.c.watched
    & bindparam("reschedules", type_=Boolean())
    # NULL if the site has no limit, or the scan reached none; only the latter moves the next scan.
    & func.coalesce(DOMAINS.c.max_pages <= _STOPPED_AT, _STOPPED_AT.is_(None))
)
_INTERVAL_HOURS = func.coalesce(
    DOMAINS.c.scan_interval_hours, bindparam("default_interval_hours", type_=Double())
)
RECORD_SUCCESS = RECORD_COUNTS.values(
    last_scan_at=func.now(),
    last_scan_status=bindparam("ended"),
    last_error_code=None,
    failures_in_a_row=0,
    origin=func.coalesce(bindparam("answered_at", type_=DOMAINS.c.origin.type), DOMAINS.c.origin),
    next_scan_at=case(
        (_COUNTS_AS_SCHEDULED, hours_from_now(_INTERVAL_HOURS)), else_=DOMAINS.c.next_scan_at
    ),
)
_HELD = bindparam("held", type_=DOMAINS.c.missing_count.type)
_REMOVALS = {
    "missing_count": _HELD,
    "removals_held_since": case(
        (_HELD > 0, func.coalesce(DOMAINS.c.removals_held_since, func.now())), else_=null()
    ),
    "baseline_scan_id": func.coalesce(
        DOMAINS.c.baseline_scan_id,
        bindparam("baseline", type_=DOMAINS.c.baseline_scan_id.type),
    ),
}
# Joined, so that the row of the scan is written, and locked, before that of its site.
_PUBLISHED = PUBLISH.cte("published")
_OF_PUBLISHED = DOMAINS.c.id == _PUBLISHED.c.domain_id
PUBLISH_AND_RECORD_COUNTS = RECORD_COUNTS.where(_OF_PUBLISHED).values(**_REMOVALS)
PUBLISH_AND_RECORD_SUCCESS = (
    RECORD_SUCCESS.where(_OF_PUBLISHED).values(**_REMOVALS).returning(_COUNTS_AS_SCHEDULED)
)
RECORD_FAILURE = _CHANGE.values(
    last_scan_at=func.now(),
    last_scan_status=LastScanStatus.FAILED,
    last_error_code=bindparam("code"),
    failures_in_a_row=DOMAINS.c.failures_in_a_row + 1,
    updated_at=func.now(),
)


@dataclass(frozen=True, slots=True)
class Publication:
    """What a scan found, and what its site lists from now on.

    `read` is what the scan read, `stored` what the site has. `reasons` say why the scan is partial,
    if it is. `held` is the number of held removals. `is_baseline`: it is the first complete one.
    """

    scan_id: int
    scope: ScanScope
    read: ScanCounts
    stored: ScanCounts
    reasons: list[str]
    changes: dict[str, int]
    held: int = 0
    is_baseline: bool = False
    origin: str | None = None

    def values(self) -> dict[str, Any]:
        """The values of `PUBLISH` and of the statement around it."""
        return {
            "of_scan": self.scan_id,
            "its_scope": self.scope,
            "is_partial": bool(self.reasons),
            "why": self.reasons,
            "read_sitemaps": self.read.sitemaps,
            "read_urls": self.read.urls,
            "changes": self.changes,
            "held": self.held,
            "baseline": self.scan_id if self.is_baseline else None,
            **asdict(self.stored),
        }


@dataclass(frozen=True, slots=True)
class Rescheduling:
    """A scan requested by a user moves the next scheduled scan of its site one interval away.

    It does not if it stopped at a limit (`stopped_at`) below that of the site.
    `default_interval_hours` applies to sites without an interval of their own.
    """

    stopped_at: int | None = None
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS


async def record_first_origin(session: AsyncSession, domain_id: UUID, origin: str) -> None:
    """Record which origin responds for a site, if none is known."""
    await session.execute(RECORD_FIRST_ORIGIN, {"of_domain": domain_id, "answered_at": origin})


async def count_domain(session: AsyncSession, domain_id: UUID) -> tuple[int, int]:
    """The readable documents of a site, and their URLs."""
    count, urls = (await session.execute(COUNT_DOMAIN, {"domain": domain_id})).one()
    return count, int(urls)


async def publish_scan(
    session: AsyncSession,
    publication: Publication,
    *,
    domain_id: UUID,
    whole_site: bool = True,
    rescheduling: Rescheduling | None = None,
) -> bool:
    """Publish a scan but for its number: its site gets the new counters.

    The site also learns how the scan ended and which origin answered, if it was a scan of the
    whole site: one of a single document says nothing on that. Without `rescheduling` the time of
    its next scan stays as it is. Return whether it was moved.
    """
    values = publication.values() | {"of_domain": domain_id}
    if not whole_site:
        await session.execute(PUBLISH_AND_RECORD_COUNTS, values)
        return False
    status = LastScanStatus.PARTIAL if publication.reasons else LastScanStatus.COMPLETED
    values |= {"ended": status, "answered_at": publication.origin}
    values |= asdict(rescheduling or Rescheduling()) | {"reschedules": rescheduling is not None}
    return bool(await session.scalar(PUBLISH_AND_RECORD_SUCCESS, values))


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
