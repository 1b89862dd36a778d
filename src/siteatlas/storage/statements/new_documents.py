"""Documents that the feed has not told of: new ones, and those that were read silently."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import BigInteger, Uuid, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.statements.scan_summary import IS_NEW, silent_read_untold
from siteatlas.storage.tables import SITEMAP_SCANS, SITEMAPS

_SCAN = bindparam("scan", type_=BigInteger())
_OF_SCAN = (
    select(SITEMAPS.c.id)
    .join(SITEMAP_SCANS, SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id)
    .where(SITEMAP_SCANS.c.scan_id == _SCAN)
)
FIND_NEW = _OF_SCAN.where(IS_NEW)
# Such a read may belong to a scan that was not published; this scan tells of it.
TELL_SILENT_READS = (
    update(SITEMAPS)
    .where(SITEMAPS.c.domain_id == bindparam("of_domain", type_=Uuid()), silent_read_untold())
    .values(baseline_scan_id=_SCAN)
    .returning(SITEMAPS.c.id)
)


async def find_new_documents(
    session: AsyncSession, scan_id: int, *, but: Collection[UUID] = ()
) -> list[UUID]:
    """The documents that a scan has read and no published scan before."""
    found = (await session.scalars(FIND_NEW, {"scan": scan_id})).all()
    return [one for one in found if one not in but]


async def tell_silent_reads(session: AsyncSession, scan_id: int, domain_id: UUID) -> list[UUID]:
    """The documents with a silent read that is not in the feed yet; this scan tells of it."""
    values = {"scan": scan_id, "of_domain": domain_id}
    return list((await session.scalars(TELL_SILENT_READS, values)).all())
