"""Read statements for sitemap documents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Select, Uuid, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import SitemapNotFound
from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, page_size, uuid_key
from siteatlas.insights.views import select_view
from siteatlas.storage.models import Domain, Sitemap, SitemapLink, SitemapStatus

MAX_PARENTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SitemapView:
    """A document as others see it; `job_id` is the job that read it last."""

    id: UUID
    url: str
    domain: str
    domain_id: UUID
    type: str | None
    discovery_method: str
    status: SitemapStatus
    job_id: UUID
    created_by: UUID
    created_at: datetime
    last_read_at: datetime | None
    url_count: int
    http_status: int | None
    wire_bytes: int
    decoded_bytes: int
    fetch_seconds: float
    lastmod: datetime | None
    parent_ids: list[UUID]
    error_code: str | None
    error: str | None


async def find_sitemap(session: AsyncSession, sitemap_id: UUID) -> SitemapView:
    """The document with this id, unless its site was deleted."""
    row = (await session.execute(_select_sitemaps().where(Sitemap.id == sitemap_id))).one_or_none()
    if row is None:
        raise SitemapNotFound
    return SitemapView(*row)


async def list_sitemaps(
    session: AsyncSession,
    domain_id: UUID,
    *,
    type: str | None = None,
    status: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[SitemapView]:
    """The documents of a site, by id."""
    scope = CursorScope("sitemaps", (domain_id, type, status))
    after = scope.read(cursor, uuid_key)
    size = page_size(limit)
    statement = _select_sitemaps().where(Sitemap.domain_id == domain_id)
    if type is not None:
        statement = statement.where(Sitemap.type == type)
    if status is not None:
        statement = statement.where(Sitemap.status == status)
    if after is not None:
        statement = statement.where(Sitemap.id > after)
    statement = statement.order_by(Sitemap.id)
    return await read_page(session, statement, size, SitemapView, lambda row: scope.write(row.id))


def _select_sitemaps() -> Select[*tuple[Any, ...]]:
    """The read statement for `SitemapView`, without the sitemaps of deleted sites."""
    parents = (
        select(SitemapLink.parent_id)
        .where(SitemapLink.child_id == Sitemap.id)
        .order_by(SitemapLink.parent_id)
        .limit(MAX_PARENTS_SHOWN)
        .correlate(Sitemap)
        .scalar_subquery()
    )
    statement = select_view(
        SitemapView,
        Sitemap,
        domain=Domain.domain,
        job_id=Sitemap.last_job_id,
        parent_ids=func.array(parents, type_=ARRAY(Uuid())),
    )
    kept = Domain.deleted_at.is_(None)
    return statement.join(Domain, Domain.id == Sitemap.domain_id).where(kept)
