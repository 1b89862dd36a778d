"""What is known of the missing URLs of a site, as far as their removal depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, any_, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.statements.known_sitemaps import DONE
from siteatlas.storage.tables import SCANS, SITEMAP_SCANS, SITEMAP_URLS, SITEMAPS

# Documents in the way of removals that are looked at, those read longest ago first.
MAX_OLDEST = 20
_DOMAIN = bindparam("of_domain", type_=Uuid())


@dataclass(frozen=True, slots=True)
class MissingUrls:
    """The URLs of a document that are missing since the same scan.

    They were there at `last_seen_at` and missed at `missed_at` by a scan that had begun at
    `scan_started_at`; the document was last read at `last_complete_at`. `is_empty`: it then listed
    nothing at all.
    """

    sitemap_id: UUID
    sitemap: str
    scan_id: int
    count: int
    last_complete_at: datetime | None
    is_empty: bool
    scan_started_at: datetime | None = None
    missed_at: datetime | None = None
    last_seen_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """When a document was last read completely; None if it never was."""

    id: UUID
    url: str
    last_complete_at: datetime | None


def _last_read_before(scan_read: Any) -> Any:
    """The end of the last complete read of a document before a given one."""
    earlier = SITEMAP_SCANS.alias("earlier")
    return (
        select(func.max(earlier.c.finished_at))
        .where(
            earlier.c.sitemap_id == scan_read.c.sitemap_id,
            earlier.c.state.in_(DONE),
            earlier.c.finished_at < scan_read.c.finished_at,
        )
        .scalar_subquery()
    )


_COUNTS = (
    select(
        SITEMAP_URLS.c.sitemap_id,
        SITEMAP_URLS.c.missing_scan_id.label("scan_id"),
        func.count().label("count"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_URLS.c.sitemap_id)
    .where(
        SITEMAPS.c.domain_id == _DOMAIN,
        SITEMAPS.c.missing_count > 0,
        SITEMAPS.c.gone_at.is_(None),
        SITEMAP_URLS.c.missing_scan_id.is_not(None),
        SITEMAP_URLS.c.removed_at.is_(None),
    )
    .group_by(SITEMAP_URLS.c.sitemap_id, SITEMAP_URLS.c.missing_scan_id)
    .cte("counts")
)
LOAD_MISSING = (
    select(
        _COUNTS.c.sitemap_id,
        SITEMAPS.c.url.label("sitemap"),
        _COUNTS.c.scan_id,
        _COUNTS.c.count,
        SITEMAPS.c.last_complete_at,
        (SITEMAPS.c.url_count <= SITEMAPS.c.missing_count).label("is_empty"),
        SCANS.c.started_at.label("scan_started_at"),
        SITEMAP_SCANS.c.finished_at.label("missed_at"),
        _last_read_before(SITEMAP_SCANS).label("last_seen_at"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == _COUNTS.c.sitemap_id)
    .outerjoin(SCANS, SCANS.c.id == _COUNTS.c.scan_id)
    .outerjoin(
        SITEMAP_SCANS,
        (SITEMAP_SCANS.c.scan_id == _COUNTS.c.scan_id)
        & (SITEMAP_SCANS.c.sitemap_id == _COUNTS.c.sitemap_id),
    )
    .order_by(SITEMAPS.c.url, _COUNTS.c.scan_id)
)
LOAD_OLDEST = (
    select(SITEMAPS.c.id, SITEMAPS.c.url, SITEMAPS.c.last_complete_at)
    .where(
        SITEMAPS.c.domain_id == _DOMAIN,
        SITEMAPS.c.gone_at.is_(None),
        SITEMAPS.c.id != func.all(bindparam("but", type_=ARRAY(Uuid()))),
    )
    .order_by(SITEMAPS.c.last_complete_at.asc().nulls_first(), SITEMAPS.c.url)
    .limit(MAX_OLDEST)
)
NOW = select(func.now())
STORE_DECISION = (
    update(SCANS)
    .where(SCANS.c.id == bindparam("of_scan"))
    .values(removal_decision=bindparam("decision", type_=JSONB()))
)
LOAD_DECISION = select(SCANS.c.removal_decision).where(SCANS.c.id == bindparam("of_scan"))


def _leaving() -> Any:
    """Count the missing URLs of documents that no other document lists, up to a limit.

    Most URLs of the site are missing when this is asked, so that both sets are read once.
    """
    urls, other = SITEMAP_URLS, SITEMAP_URLS.alias("o")
    missing = select(urls.c.url_hash).where(
        urls.c.sitemap_id == any_(bindparam("ids", type_=ARRAY(Uuid()))),
        urls.c.missing_scan_id.is_not(None),
        urls.c.removed_at.is_(None),
    )
    listed = (
        select(other.c.url_hash)
        .join(SITEMAPS, SITEMAPS.c.id == other.c.sitemap_id)
        .where(
            SITEMAPS.c.domain_id == _DOMAIN,
            other.c.removed_at.is_(None),
            other.c.missing_scan_id.is_(None),
        )
    )
    leaving = missing.except_(listed).limit(bindparam("up_to")).subquery("leaving")
    return select(func.count()).select_from(leaving)


COUNT_LEAVING = _leaving()


async def load_missing(session: AsyncSession, domain_id: UUID) -> list[MissingUrls]:
    """The missing URLs of a site, by document and the scan that first missed them."""
    rows = await session.execute(LOAD_MISSING, {"of_domain": domain_id})
    return [MissingUrls(**row) for row in rows.mappings()]


async def load_oldest_reads(
    session: AsyncSession, domain_id: UUID, but: list[UUID]
) -> list[ReadDocument]:
    """The documents of a site that are not gone, those read longest ago first; at most 20."""
    rows = await session.execute(LOAD_OLDEST, {"of_domain": domain_id, "but": but})
    return [ReadDocument(*row) for row in rows.all()]


async def database_time(session: AsyncSession) -> datetime:
    """The time that all stored times are compared with."""
    return (await session.execute(NOW)).scalar_one()


async def count_leaving_urls(
    session: AsyncSession, domain_id: UUID, sitemap_ids: list[UUID], up_to: int
) -> int:
    """How many URLs missing in these documents no document of the site lists; at most `up_to`."""
    values = {"of_domain": domain_id, "ids": sitemap_ids, "up_to": up_to}
    return int(await session.scalar(COUNT_LEAVING, values) or 0)


async def store_decision(session: AsyncSession, scan_id: int, decision: dict[str, Any]) -> None:
    """Store what a scan removes before it does, so that a later attempt does the same."""
    await session.execute(STORE_DECISION, {"of_scan": scan_id, "decision": decision})


async def load_decision(session: AsyncSession, scan_id: int) -> dict[str, Any] | None:
    """What an earlier attempt at a scan decided to remove."""
    decision: dict[str, Any] | None = await session.scalar(LOAD_DECISION, {"of_scan": scan_id})
    return decision
