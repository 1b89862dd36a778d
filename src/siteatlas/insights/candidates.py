"""Read statements for candidates: every address where a sitemap was looked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, bigint_key, page_size
from siteatlas.insights.views import select_view
from siteatlas.storage.models import Candidate


@dataclass(frozen=True, slots=True)
class CandidateView:
    """A place and what was found there by the last scan that looked."""

    url: str
    method: str
    verdict: str
    reason: str | None
    type: str | None
    http_status: int | None
    scan_id: int
    checked_at: datetime


async def list_candidates(
    session: AsyncSession,
    domain_id: UUID,
    *,
    verdict: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[CandidateView]:
    """The candidates of a site, in the order of their hash."""
    scope = CursorScope("candidates", (domain_id, verdict))
    after = scope.read(cursor, bigint_key)
    size = page_size(limit)
    statement = select_view(CandidateView, Candidate).where(Candidate.domain_id == domain_id)
    if verdict is not None:
        statement = statement.where(Candidate.verdict == verdict)
    if after is not None:
        statement = statement.where(Candidate.url_hash > after)
    statement = statement.add_columns(Candidate.url_hash).order_by(Candidate.url_hash)
    return await read_page(
        session,
        statement,
        size,
        lambda *row: CandidateView(*row[:-1]),
        lambda row: scope.write(row.url_hash),
    )
