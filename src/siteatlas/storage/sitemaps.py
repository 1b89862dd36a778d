"""Write statements on documents: what is known of a site's, and what a scan says of them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, any_, bindparam, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.bulk import insert_rows, replace_rows, table_of, update_rows
from siteatlas.storage.models import (
    Candidate,
    Domain,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapScanState,
    SitemapStatus,
    SitemapUrl,
)

# Statements of every scan are made once: making one costs as much as running it.
SITEMAPS = table_of(Sitemap)
SCANNED = table_of(SitemapScan)
LISTINGS = table_of(SitemapUrl)
READ = (SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED, SitemapScanState.CUT)
NOTE_READING = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid()))))
    .values(
        last_read_at=func.now(),
        url_count=select(func.count())
        .where(LISTINGS.c.sitemap_id == SITEMAPS.c.id, LISTINGS.c.removed_at.is_(None))
        .scalar_subquery(),
    )
    .returning(SITEMAPS.c.id, SITEMAPS.c.url_count)
)
LARGEST = (
    select(
        SITEMAPS.c.id,
        SITEMAPS.c.url,
        SITEMAPS.c.type,
        SCANNED.c.url_count,
        func.count().over().label("documents"),
        func.sum(SCANNED.c.url_count).over().label("urls"),
    )
    .join(SCANNED, SCANNED.c.sitemap_id == SITEMAPS.c.id)
    .where(SCANNED.c.scan_id == bindparam("scan"), SCANNED.c.state.in_(READ))
    .order_by(SCANNED.c.url_count.desc(), SITEMAPS.c.url)
    .limit(bindparam("most"))
)
COUNT_DOMAIN = select(
    func.count().filter((SITEMAPS.c.status == "completed") | (SITEMAPS.c.url_count > 0)),
    func.coalesce(func.sum(SITEMAPS.c.url_count), 0),
).where(SITEMAPS.c.domain_id == bindparam("domain"))
LOAD = (
    select(
        SITEMAPS.c.id,
        SITEMAPS.c.url,
        SITEMAPS.c.requested_url,
        SITEMAPS.c.type,
        SITEMAPS.c.discovery_method,
        SITEMAPS.c.url_count,
        SCANNED.c.state,
        SCANNED.c.url_count.label("read_count"),
    )
    .outerjoin(
        SCANNED,
        (SCANNED.c.sitemap_id == SITEMAPS.c.id) & (SCANNED.c.scan_id == bindparam("scan")),
    )
    .where(SITEMAPS.c.domain_id == bindparam("domain"))
)

# How long a document that a person named is asked for after it could last be read.
MANUAL_GRACE_DAYS = 30
LOAD_MANUAL = (
    select(func.coalesce(SITEMAPS.c.requested_url, SITEMAPS.c.url))
    .where(
        SITEMAPS.c.domain_id == bindparam("domain"),
        SITEMAPS.c.discovery_method == "manual",
        or_(
            SITEMAPS.c.status == SitemapStatus.COMPLETED,
            exists().where(
                SCANNED.c.sitemap_id == SITEMAPS.c.id,
                SCANNED.c.state.in_(READ),
                SCANNED.c.finished_at > func.now() - timedelta(days=MANUAL_GRACE_DAYS),
            ),
        ),
    )
    .order_by(SITEMAPS.c.created_at, SITEMAPS.c.url)
)


@dataclass(frozen=True, slots=True)
class KnownSitemap:
    """A stored document, with what the current scan already did with it.

    `url_count` is what is stored of it, `read_count` what the current scan has read in it.
    """

    id: UUID
    url: str
    requested_url: str | None
    type: str | None
    discovery_method: str
    url_count: int
    state: SitemapScanState | None
    read_count: int = 0
    children: tuple[UUID, ...] = field(default=())


async def load_sitemaps(
    session: AsyncSession, domain_id: UUID, scan_id: int
) -> dict[UUID, KnownSitemap]:
    """Every stored document of a site."""
    rows = (await session.execute(LOAD, {"domain": domain_id, "scan": scan_id})).all()
    children = await _load_children(session, domain_id) if rows else {}
    return {
        row.id: KnownSitemap(
            id=row.id,
            url=row.url,
            requested_url=row.requested_url,
            type=row.type,
            discovery_method=row.discovery_method,
            url_count=row.url_count,
            state=SitemapScanState(row.state) if row.state else None,
            read_count=row.read_count or 0,
            children=tuple(children.get(row.id, ())),
        )
        for row in rows
    }


async def load_manual_documents(session: AsyncSession, domain_id: UUID) -> tuple[str, ...]:
    """Addresses of the documents that a person named and that were read as sitemaps.

    One that fails now is still asked for, but not for ever: the site may have given it up.
    """
    return tuple((await session.scalars(LOAD_MANUAL, {"domain": domain_id})).all())


async def _load_children(session: AsyncSession, domain_id: UUID) -> dict[UUID, list[UUID]]:
    statement = (
        select(SitemapLink.parent_id, SitemapLink.child_id)
        .join(Sitemap, Sitemap.id == SitemapLink.parent_id)
        .where(Sitemap.domain_id == domain_id)
    )
    children: dict[UUID, list[UUID]] = {}
    for parent_id, child_id in (await session.execute(statement)).all():
        children.setdefault(parent_id, []).append(child_id)
    return children


async def insert_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert documents that are new to a site."""
    await insert_rows(session, Sitemap, rows)


async def update_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write what a scan learned of stored documents; each row names its `id`."""
    await update_rows(session, Sitemap, rows)


async def note_reading(session: AsyncSession, sitemap_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Note that documents were read now, and how many listings each of them has."""
    rows = (await session.execute(NOTE_READING, {"ids": list(sitemap_ids)})).all()
    return {row.id: row.url_count for row in rows}


async def link_sitemaps(session: AsyncSession, pairs: Sequence[tuple[UUID, UUID]]) -> None:
    """Note which index lists which child."""
    rows = [{"parent_id": parent, "child_id": child} for parent, child in pairs]
    await insert_rows(session, SitemapLink, rows)


async def mark_pending(session: AsyncSession, scan_id: int, sitemap_ids: Sequence[UUID]) -> None:
    """Put documents on the frontier of a scan."""
    rows = [{"scan_id": scan_id, "sitemap_id": sitemap_id} for sitemap_id in sitemap_ids]
    await insert_rows(session, SitemapScan, rows)


async def close_sitemap_scans(
    session: AsyncSession, scan_id: int, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Note how the reading of documents ended."""
    complete = [{"scan_id": scan_id, **row} for row in rows]
    await replace_rows(session, SitemapScan, complete, moment="finished_at")


async def record_candidates(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write down every place where a sitemap was looked for."""
    await replace_rows(session, Candidate, rows, moment="checked_at")


async def record_origin(session: AsyncSession, domain_id: UUID, origin: str) -> None:
    """Note which origin answers for a site."""
    await session.execute(
        update(Domain)
        .where(Domain.id == domain_id)
        .values(origin=origin)
        .execution_options(synchronize_session=False)
    )


async def count_domain(session: AsyncSession, domain_id: UUID) -> tuple[int, int]:
    """Documents of a site that could be read, and the listings in them."""
    count, urls = (await session.execute(COUNT_DOMAIN, {"domain": domain_id})).one()
    return count, int(urls)


async def summarise_scan(
    session: AsyncSession, scan_id: int, limit: int
) -> tuple[int, int, list[dict[str, Any]]]:
    """Documents and listings that a scan read, and its largest documents."""
    rows = (await session.execute(LARGEST, {"scan": scan_id, "most": limit})).all()
    documents, urls = (rows[0].documents, int(rows[0].urls)) if rows else (0, 0)
    return (
        documents,
        urls,
        [
            {"id": str(row.id), "url": row.url, "type": row.type, "url_count": row.url_count}
            for row in rows
        ],
    )
