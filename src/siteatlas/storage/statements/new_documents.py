"""Documents that the feed has not reported: new ones, and those that were read silently."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, Uuid, bindparam, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.statements.scan_summary import IS_NEW, silent_read_untold
from siteatlas.storage.tables import SITEMAP_SCANS, SITEMAPS

_SCAN = bindparam("scan", type_=BigInteger())
TELL_NEW_DOCUMENTS = (
    update(SITEMAPS)
    .where(SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id, SITEMAP_SCANS.c.scan_id == _SCAN, IS_NEW)
    .values(baseline_scan_id=_SCAN)
    .returning(SITEMAPS.c.id)
)
# Such a read may belong to a scan that was not published; this scan reports it.
TELL_SILENT_READS = (
    update(SITEMAPS)
    .where(SITEMAPS.c.domain_id == bindparam("of_domain", type_=Uuid()), silent_read_untold())
    .values(baseline_scan_id=_SCAN)
    .returning(SITEMAPS.c.id)
)


async def report_new_documents(session: AsyncSession, scan_id: int) -> list[UUID]:
    """The documents that a scan has read and the feed has not reported; this scan does."""
    return list((await session.scalars(TELL_NEW_DOCUMENTS, {"scan": scan_id})).all())


async def report_silent_reads(session: AsyncSession, scan_id: int, domain_id: UUID) -> list[UUID]:
    """The documents with a silent read that is not in the feed yet; this scan reports it."""
    values = {"scan": scan_id, "of_domain": domain_id}
    return list((await session.scalars(TELL_SILENT_READS, values)).all())
