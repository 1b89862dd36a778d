"""Write statements for documents: what a scan found, and their counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, any_, bindparam, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import (
    Candidate,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapScanState,
    SitemapStatus,
)
from siteatlas.storage.statements.bulk import (
    insert_rows,
    insert_values,
    replace_rows,
    update_rows,
)
from siteatlas.storage.tables import SITEMAP_SCANS, SITEMAP_URLS, SITEMAPS

# Statements of every scan are built once: building one takes as long as running it.
READ = (SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED, SitemapScanState.CUT)


def stored_url_count(sitemap_id: Any) -> Any:
    """The number of URLs stored for a document, as a subquery of a write statement."""
    return (
        select(func.count())
        .where(SITEMAP_URLS.c.sitemap_id == sitemap_id, SITEMAP_URLS.c.removed_at.is_(None))
        .scalar_subquery()
    )


NOTE_READING = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid()))))
    .values(last_read_at=func.now(), url_count=stored_url_count(SITEMAPS.c.id))
    .returning(SITEMAPS.c.id, SITEMAPS.c.url_count)
)
_READ_ROW = insert(SITEMAPS).values(
    last_read_at=func.now(), url_count=stored_url_count(bindparam("of_sitemap", type_=Uuid()))
)
# A commit whose answer was lost may have left the row before its document was read.
INSERT_READ = _READ_ROW.on_conflict_do_update(
    index_elements=[SITEMAPS.c.id],
    set_={name: _READ_ROW.excluded[name] for name in ("last_read_at", "url_count")},
)
MARK_OPENED = (
    update(SITEMAP_SCANS)
    .where(
        SITEMAP_SCANS.c.scan_id == bindparam("of_scan"),
        SITEMAP_SCANS.c.sitemap_id == bindparam("of_sitemap"),
        SITEMAP_SCANS.c.state == SitemapScanState.PENDING,
    )
    .values(http_status=bindparam("answered"))
)
# How long a document that a user named is requested after it was last read.
MANUAL_GRACE_DAYS = 30
LOAD_MANUAL = (
    select(func.coalesce(SITEMAPS.c.requested_url, SITEMAPS.c.url).label("url"))
    .where(
        SITEMAPS.c.domain_id == bindparam("domain"),
        SITEMAPS.c.discovery_method == "manual",
        or_(
            SITEMAPS.c.status == SitemapStatus.COMPLETED,
            exists().where(
                SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id,
                SITEMAP_SCANS.c.state.in_(READ),
                SITEMAP_SCANS.c.finished_at > func.now() - timedelta(days=MANUAL_GRACE_DAYS),
            ),
        ),
    )
    .order_by(SITEMAPS.c.created_at, SITEMAPS.c.url)
)


async def load_manual_documents(session: AsyncSession, domain_id: UUID) -> tuple[str, ...]:
    """Addresses of the documents that a user submitted and that were read as sitemaps.

    A failing one is still requested, but not forever: the site may have abandoned it.
    """
    return tuple((await session.scalars(LOAD_MANUAL, {"domain": domain_id})).all())


async def insert_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert documents that are new to a site."""
    await insert_rows(session, Sitemap, rows)


async def insert_read_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert documents that are new to a site and were read now, counting their stored URLs."""
    await insert_values(session, INSERT_READ, [{**row, "of_sitemap": row["id"]} for row in rows])


async def update_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Update stored documents with what a scan found; each row contains its `id`."""
    await update_rows(session, Sitemap, rows)


async def note_reading(session: AsyncSession, sitemap_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Record that documents were read now, and how many URLs each of them has."""
    rows = (await session.execute(NOTE_READING, {"ids": list(sitemap_ids)})).all()
    return {row.id: row.url_count for row in rows}


async def link_sitemaps(session: AsyncSession, pairs: Sequence[tuple[UUID, UUID]]) -> None:
    """Record which index lists which child."""
    rows = [{"parent_id": parent, "child_id": child} for parent, child in pairs]
    await insert_rows(session, SitemapLink, rows)


async def mark_pending(session: AsyncSession, scan_id: int, sitemap_ids: Sequence[UUID]) -> None:
    """Put documents on the frontier of a scan."""
    rows = [{"scan_id": scan_id, "sitemap_id": sitemap_id} for sitemap_id in sitemap_ids]
    await insert_rows(session, SitemapScan, rows)


async def mark_opened(
    session: AsyncSession, scan_id: int, answers: Mapping[UUID, int | None]
) -> None:
    """Record that documents of a scan responded and are being read; their rows stay pending."""
    rows = [
        {"of_scan": scan_id, "of_sitemap": sitemap_id, "answered": status}
        for sitemap_id, status in sorted(answers.items())
    ]
    if rows:
        await session.execute(MARK_OPENED, rows)


async def close_sitemap_scans(
    session: AsyncSession, scan_id: int, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Record how the reading of documents ended."""
    complete = [{"scan_id": scan_id, **row} for row in rows]
    await replace_rows(session, SitemapScan, complete, moment="finished_at")


async def record_candidates(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Record every candidate address where a scan looked for a sitemap."""
    await replace_rows(session, Candidate, rows, moment="checked_at")
