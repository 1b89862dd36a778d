"""What a scan that ends has read, what is stored of its site, and what is left to do, in one go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Uuid, and_, bindparam, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import SitemapScanState
from siteatlas.storage.statements.change_takeover import leftover_scans
from siteatlas.storage.statements.domain_results import COUNTS
from siteatlas.storage.statements.known_sitemaps import DONE
from siteatlas.storage.statements.sitemaps import READ
from siteatlas.storage.statements.unfinished import NOT_ASKED
from siteatlas.storage.tables import DOMAINS, SCANS, SITEMAP_SCANS, SITEMAPS, URL_CHANGES

NOT_FOUND = (404, 410)
_SCAN = bindparam("scan", type_=BigInteger())
_DOMAIN = bindparam("domain", type_=Uuid())
_STATE = SITEMAP_SCANS.c.state
_IN_SCAN = (SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id) & (SITEMAP_SCANS.c.scan_id == _SCAN)
_IS_GONE = SITEMAPS.c.gone_at.is_not(None)
# The scan did not come to it, or did not find it; other faults prove nothing.
_MAY_HAVE_VANISHED = or_(
    _STATE.is_(None),
    and_(
        _STATE == SitemapScanState.UNREAD,
        or_(
            SITEMAP_SCANS.c.http_status.in_(NOT_FOUND),
            SITEMAP_SCANS.c.error_code == NOT_ASKED,
            SITEMAPS.c.vanished_at.is_not(None),
        ),
    ),
)


def silent_read_untold() -> Any:
    """SQL condition: the last silent read of the document is not in the feed yet."""
    its_scan = SCANS.alias("silent_scan")
    return (
        select(its_scan.c.id)
        .where(its_scan.c.id == SITEMAPS.c.baseline_scan_id, its_scan.c.published_seq.is_(None))
        .correlate(SITEMAPS)
        .exists()
    )


# All that the feed has reported, by a baseline or as added, have a scan that did.
IS_NEW = and_(_STATE.in_(READ), SITEMAPS.c.baseline_scan_id.is_(None))

# Statements of every scan are made once: making one costs as much as running it.
_STORED = (
    select(
        *COUNTS,
        func.coalesce(func.sum(SITEMAPS.c.missing_count), 0).label("missing"),
        func.count().filter(~_IS_GONE, _STATE.not_in(DONE)).label("incomplete"),
        func.count().filter(~_IS_GONE, _MAY_HAVE_VANISHED).label("unread"),
        func.count()
        .filter(_STATE.in_(READ), or_(_IS_GONE, SITEMAPS.c.vanished_at.is_not(None)))
        .label("returned"),
        func.count().filter(IS_NEW).label("new"),
        func.count().filter(silent_read_untold()).label("silent"),
    )
    .outerjoin(SITEMAP_SCANS, _IN_SCAN)
    .where(SITEMAPS.c.domain_id == _DOMAIN)
    .subquery("stored")
)
_LARGEST = (
    select(
        SITEMAPS.c.id,
        SITEMAPS.c.url,
        SITEMAPS.c.type,
        SITEMAP_SCANS.c.url_count,
        func.count().over().label("documents"),
        func.sum(SITEMAP_SCANS.c.url_count).over().label("urls"),
    )
    .join(SITEMAP_SCANS, SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id)
    .where(SITEMAP_SCANS.c.scan_id == _SCAN, _STATE.in_(READ))
    .order_by(SITEMAP_SCANS.c.url_count.desc(), SITEMAPS.c.url)
    .limit(bindparam("max_rows"))
    .subquery("largest")
)
_LAST_DISTINCT = (
    select(SCANS.c.distinct_url_count)
    .where(SCANS.c.domain_id == _DOMAIN, SCANS.c.published_seq.is_not(None))
    .order_by(SCANS.c.published_seq.desc())
    .limit(1)
    .scalar_subquery()
)
_HAS_CHANGES = select(URL_CHANGES.c.scan_id).where(URL_CHANGES.c.scan_id == _SCAN).exists()
SUMMARISE = (
    select(
        _STORED.c.sitemaps.label("stored_sitemaps"),
        _STORED.c.urls.label("stored_urls"),
        *(_STORED.c[name] for name in ("missing", "incomplete", "unread")),
        *(_STORED.c[name] for name in ("returned", "new", "silent")),
        DOMAINS.c.baseline_scan_id,
        DOMAINS.c.removals_held_since,
        DOMAINS.c.origin,
        _LAST_DISTINCT.label("last_distinct"),
        _HAS_CHANGES.label("has_changes"),
        leftover_scans(_DOMAIN, _SCAN).order_by(None).exists().label("has_leftovers"),
        *_LARGEST.c,
    )
    .select_from(_STORED)
    .join(DOMAINS, DOMAINS.c.id == _DOMAIN)
    .outerjoin(_LARGEST, true())
    .order_by(_LARGEST.c.url_count.desc(), _LARGEST.c.url)
)


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """What a scan read, with its largest documents, and what its site has.

    Of the documents of the site, those that are not gone: `missing` is the number of their missing
    URLs, `incomplete` how many the scan requested but did not read in full, `unread` how many may
    have vanished. `returned` ones were gone or had vanished, `new` ones were never in the feed,
    `silent` ones have a baseline that is not in the feed yet. `last_distinct` is the number of
    different URLs after the last published scan. `has_leftovers`: unpublished scans left changes.
    """

    sitemaps: int
    urls: int
    largest: list[dict[str, Any]]
    stored_sitemaps: int
    stored_urls: int
    missing: int
    incomplete: int
    unread: int
    returned: int
    new: int
    silent: int
    baseline_scan_id: int | None
    removals_held_since: datetime | None
    origin: str | None
    last_distinct: int | None
    has_changes: bool
    has_leftovers: bool

    @property
    def has_baseline(self) -> bool:
        """Whether the feed reports the URLs of this site."""
        return self.baseline_scan_id is not None


async def summarise_scan(
    session: AsyncSession, scan_id: int, domain_id: UUID, limit: int
) -> ScanSummary:
    """Count what is written; of the documents that were read at most `limit` are described."""
    values = {"scan": scan_id, "domain": domain_id, "max_rows": limit}
    rows = (await session.execute(SUMMARISE, values)).all()
    first = rows[0]
    return ScanSummary(
        sitemaps=first.documents or 0,
        urls=int(first.urls or 0),
        largest=[
            {"id": str(row.id), "url": row.url, "type": row.type, "url_count": row.url_count}
            for row in rows
            if row.id is not None
        ],
        stored_sitemaps=first.stored_sitemaps,
        stored_urls=int(first.stored_urls),
        missing=int(first.missing),
        incomplete=first.incomplete,
        unread=first.unread,
        returned=first.returned,
        new=first.new,
        silent=first.silent,
        baseline_scan_id=first.baseline_scan_id,
        removals_held_since=first.removals_held_since,
        origin=first.origin,
        last_distinct=first.last_distinct,
        has_changes=first.has_changes,
        has_leftovers=first.has_leftovers,
    )
