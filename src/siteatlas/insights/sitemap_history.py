"""The last reads of documents: how each ended, and how many URLs it listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, func, literal, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.views import select_view
from siteatlas.storage.models import SitemapScan, SitemapScanState

SHOWN_READS = 20


@dataclass(frozen=True, slots=True)
class DocumentRead:
    """One read of a document, in one scan of its site."""

    sitemap_id: UUID
    scan_id: int
    state: SitemapScanState
    http_status: int | None
    error_code: str | None
    url_count: int
    wire_bytes: int
    seconds: float
    finished_at: datetime | None


async def recent_reads(
    session: AsyncSession, sitemap_ids: Sequence[UUID], count: int = SHOWN_READS
) -> dict[UUID, list[DocumentRead]]:
    """The last reads of each of these documents, the oldest first."""
    if not sitemap_ids:
        return {}
    given = literal(list(sitemap_ids), ARRAY(Uuid()))
    documents = select(func.unnest(given).label("id")).subquery("documents")
    latest = (
        select_view(DocumentRead, SitemapScan)
        .where(
            SitemapScan.sitemap_id == documents.c.id,
            SitemapScan.state != SitemapScanState.PENDING,
        )
        .order_by(SitemapScan.scan_id.desc())
        .limit(count)
        .lateral("latest")
    )
    statement = (
        select(*latest.c).select_from(documents.join(latest, true())).order_by(latest.c.scan_id)
    )
    found: dict[UUID, list[DocumentRead]] = {sitemap_id: [] for sitemap_id in sitemap_ids}
    for row in await session.execute(statement):
        read = DocumentRead(*row)
        found[read.sitemap_id].append(read)
    return found


def url_counts(reads: Sequence[DocumentRead]) -> list[int]:
    """How many URLs the document listed after each of these reads, as far as they tell.

    An unchanged document was not read, and has as many as before; a failed read tells nothing.
    """
    counts: list[int] = []
    for read in reads:
        if read.state is SitemapScanState.COMPLETE:
            counts.append(read.url_count)
        elif read.state is SitemapScanState.UNCHANGED and counts:
            counts.append(counts[-1])
    return counts
