"""What a scan leaves open when it ends: documents broken off, and listed ones never requested.

The first are closed with counts taken from their rows. Of the others, one that no scan has ever
requested is removed with its links: its row would only say that it was listed.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ARRAY, Uuid, any_, bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import (
    SitemapScanState,
    SitemapStatus,
)
from siteatlas.storage.statements.sitemaps import stored_url_count
from siteatlas.storage.tables import SITEMAP_SCANS, SITEMAPS

NOT_ASKED = "not_asked"
# Rows of one statement; what is left over by a scan of an older version, retention removes.
MAX_CLOSED = 20_000

NEVER_ASKED = (SITEMAPS.c.status == SitemapStatus.PENDING) & SITEMAPS.c.type.is_(None)
PENDING = (SITEMAP_SCANS.c.scan_id == bindparam("scan")) & (
    SITEMAP_SCANS.c.state == SitemapScanState.PENDING
)


def _pending_sitemap_ids() -> Any:
    """The sitemaps that a scan leaves pending, as a subquery of the statements that close it."""
    return (
        select(SITEMAP_SCANS.c.sitemap_id)
        .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_SCANS.c.sitemap_id)
        .where(PENDING)
        .limit(MAX_CLOSED)
    )


ANY_PENDING = select(select(SITEMAP_SCANS.c.scan_id).where(PENDING).exists())
BREAK_OFF = (
    update(SITEMAP_SCANS)
    .where(PENDING, SITEMAP_SCANS.c.http_status.is_not(None))
    .values(
        state=SitemapScanState.CUT,
        error_code=bindparam("code"),
        finished_at=func.now(),
        url_count=stored_url_count(SITEMAP_SCANS.c.sitemap_id),
    )
    .returning(SITEMAP_SCANS.c.sitemap_id)
)
COUNT_BROKEN_OFF = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid()))))
    .values(
        status=SitemapStatus.FAILED,
        error_code=bindparam("code"),
        last_read_at=func.now(),
        url_count=stored_url_count(SITEMAPS.c.id),
    )
)
REMOVE_NEVER_ASKED = delete(SITEMAPS).where(
    SITEMAPS.c.id.in_(_pending_sitemap_ids().where(NEVER_ASKED))
)
CLOSE_UNASKED = (
    update(SITEMAP_SCANS)
    .where(PENDING, SITEMAP_SCANS.c.sitemap_id.in_(_pending_sitemap_ids().where(~NEVER_ASKED)))
    .values(state=SitemapScanState.UNREAD, error_code=NOT_ASKED, finished_at=func.now())
)


async def close_unfinished(session: AsyncSession, scan_id: int, code: str | None) -> None:
    """Close the unfinished documents of a scan that ends; `code` is the reason."""
    if not await session.scalar(ANY_PENDING, {"scan": scan_id}):
        return
    opened = await session.execute(BREAK_OFF, {"scan": scan_id, "code": code})
    ids = list(opened.scalars())
    if ids:
        await session.execute(COUNT_BROKEN_OFF, {"ids": ids, "code": code})
    await session.execute(REMOVE_NEVER_ASKED, {"scan": scan_id})
    await session.execute(CLOSE_UNASKED, {"scan": scan_id})
