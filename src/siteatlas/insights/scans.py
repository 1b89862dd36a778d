"""Read statements for scans: the history of a site."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, bigint_key, page_size
from siteatlas.insights.views import select_view
from siteatlas.storage.models import Scan, ScanScope, ScanState


@dataclass(frozen=True, slots=True)
class ScanView:
    """One scan over all attempts of its job.

    `url_count` is what the site lists after the scan, `read_url_count` what the scan read.
    `published_seq` is its number in the change feed, `change_counts` its changes by kind.
    """

    id: int
    job_id: UUID
    state: ScanState
    scope: ScanScope
    partial: bool
    reasons: list[str]
    error_code: str | None
    started_at: datetime
    finished_at: datetime | None
    sitemap_count: int
    url_count: int
    distinct_url_count: int
    read_url_count: int
    change_counts: dict[str, int] | None
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
    statement = select_view(ScanView, Scan, job_id=Scan.job_uuid).where(Scan.domain_id == domain_id)
    if before is not None:
        statement = statement.where(Scan.id < before)
    statement = statement.order_by(Scan.id.desc())
    return await read_page(session, statement, size, ScanView, lambda row: scope.write(row.id))


async def changes_of_last_scan(session: AsyncSession, domain_id: UUID) -> dict[str, int] | None:
    """What the last published scan of a site changed, by kind; None if there is none."""
    published = select(Scan.change_counts).where(
        Scan.domain_id == domain_id, Scan.published_seq.is_not(None)
    )
    newest = published.order_by(Scan.published_seq.desc()).limit(1)
    return (await session.execute(newest)).scalar()
