"""The scan of a job, and how each of its documents was read."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import case
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.scans import ScanView
from siteatlas.insights.sitemap_history import DocumentRead
from siteatlas.insights.views import select_view
from siteatlas.storage.models import Scan, Sitemap, SitemapScan, SitemapScanState

MAX_DOCUMENTS_SHOWN = 100
TROUBLED = (SitemapScanState.UNREAD, SitemapScanState.CUT)


@dataclass(frozen=True, slots=True)
class ScanDocumentView(DocumentRead):
    """One document in one scan, with its address."""

    url: str


async def find_scan_of_job(session: AsyncSession, job_id: int) -> ScanView | None:
    """The scan that a job has begun, if any."""
    statement = select_view(ScanView, Scan, job_id=Scan.job_uuid).where(Scan.job_id == job_id)
    row = (await session.execute(statement)).one_or_none()
    return ScanView(*row) if row else None


async def list_unread_documents(session: AsyncSession, job_id: int) -> list[ScanDocumentView]:
    """Documents that the scan of a job could not read to their end, unread ones first."""
    scan = await find_scan_of_job(session, job_id)
    if scan is None:
        return []
    documents = await list_scan_documents(session, scan.id)
    troubled = [document for document in documents if document.state in TROUBLED]
    return sorted(troubled, key=lambda document: TROUBLED.index(document.state))


async def list_scan_documents(session: AsyncSession, scan_id: int) -> list[ScanDocumentView]:
    """Documents of a scan: those that could not be read, the latest ones, those that wait."""
    statement = (
        select_view(ScanDocumentView, SitemapScan, url=Sitemap.url)
        .join(Sitemap, Sitemap.id == SitemapScan.sitemap_id)
        .where(SitemapScan.scan_id == scan_id)
        .order_by(
            case((SitemapScan.state.in_(TROUBLED), 0), else_=1),
            SitemapScan.finished_at.desc().nulls_last(),
            Sitemap.url,
        )
        .limit(MAX_DOCUMENTS_SHOWN)
    )
    return [ScanDocumentView(*row) for row in await session.execute(statement)]
