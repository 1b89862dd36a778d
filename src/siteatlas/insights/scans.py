"""Reading scans: the history of a site."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, bigint_key, page_size
from siteatlas.storage.models import Scan


@dataclass(frozen=True, slots=True)
class ScanView:
    """One scan over all attempts of its job; `published_seq` orders what readers may see."""

    id: int
    job_id: UUID
    state: str
    partial: bool
    reasons: list[str]
    error_code: str | None
    started_at: datetime
    finished_at: datetime | None
    sitemap_count: int
    url_count: int
    distinct_url_count: int
    published_seq: int | None


async def list_scans(
    session: AsyncSession,
    domain_id: UUID,
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[ScanView]:
    """The scans of a site, newest first."""
    scope = CursorScope("scans", (domain_id,))
    before = scope.read(cursor, bigint_key)
    size = page_size(limit)
    statement = select(Scan).where(Scan.domain_id == domain_id)
    if before is not None:
        statement = statement.where(Scan.id < before)
    statement = statement.order_by(Scan.id.desc())
    return await read_page(session, statement, size, _view, lambda row: scope.write(row[0].id))


def _view(found: Row[Scan]) -> ScanView:
    (row,) = found
    return ScanView(
        id=row.id,
        job_id=row.job_uuid,
        state=row.state,
        partial=row.partial,
        reasons=row.reasons,
        error_code=row.error_code,
        started_at=row.started_at,
        finished_at=row.finished_at,
        sitemap_count=row.sitemap_count,
        url_count=row.url_count,
        distinct_url_count=row.distinct_url_count,
        published_seq=row.published_seq,
    )
