"""What a scan that ends has read, and what is stored of its site, in one statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.statements.domain_results import COUNT_DOMAIN
from siteatlas.storage.statements.sitemaps import READ
from siteatlas.storage.tables import SITEMAP_SCANS, SITEMAPS

# Statements of every scan are made once: making one costs as much as running it.
_STORED = COUNT_DOMAIN.subquery("stored")
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
    .where(SITEMAP_SCANS.c.scan_id == bindparam("scan"), SITEMAP_SCANS.c.state.in_(READ))
    .order_by(SITEMAP_SCANS.c.url_count.desc(), SITEMAPS.c.url)
    .limit(bindparam("max_rows"))
    .subquery("largest")
)
SUMMARISE = (
    select(
        _STORED.c.sitemaps.label("stored_sitemaps"),
        _STORED.c.urls.label("stored_urls"),
        *_LARGEST.c,
    )
    .outerjoin_from(_STORED, _LARGEST, true())
    .order_by(_LARGEST.c.url_count.desc(), _LARGEST.c.url)
)


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """The documents and URLs that a scan read, its largest documents, and what its site has."""

    sitemaps: int
    urls: int
    largest: list[dict[str, Any]]
    stored_sitemaps: int
    stored_urls: int


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
    )
