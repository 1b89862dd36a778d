"""Reading sitemap documents: one of them, or those of a site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ARRAY, Row, Select, Uuid, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import SitemapNotFound
from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, page_size, uuid_key
from siteatlas.storage.models import Domain, Sitemap, SitemapLink

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
    status: str
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
    row = (await session.execute(_sitemaps().where(Sitemap.id == sitemap_id))).one_or_none()
    if row is None:
        raise SitemapNotFound
    return _view(row)


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
    statement = _sitemaps().where(Sitemap.domain_id == domain_id)
    if type is not None:
        statement = statement.where(Sitemap.type == type)
    if status is not None:
        statement = statement.where(Sitemap.status == status)
    if after is not None:
        statement = statement.where(Sitemap.id > after)
    statement = statement.order_by(Sitemap.id)
    return await read_page(session, statement, size, _view, lambda row: scope.write(row[0].id))


def _sitemaps() -> Select[Sitemap, str, Sequence[UUID]]:
    parents = (
        select(SitemapLink.parent_id)
        .where(SitemapLink.child_id == Sitemap.id)
        .order_by(SitemapLink.parent_id)
        .limit(MAX_PARENTS_SHOWN)
        .correlate(Sitemap)
        .scalar_subquery()
    )
    return (
        select(Sitemap, Domain.domain, func.array(parents, type_=ARRAY(Uuid())))
        .join(Domain, Domain.id == Sitemap.domain_id)
        .where(Domain.deleted_at.is_(None))
    )


def _view(row: Row[Sitemap, str, Sequence[UUID]]) -> SitemapView:
    sitemap, domain, parent_ids = row
    return SitemapView(
        id=sitemap.id,
        url=sitemap.url,
        domain=domain,
        domain_id=sitemap.domain_id,
        type=sitemap.type,
        discovery_method=sitemap.discovery_method,
        status=sitemap.status,
        job_id=sitemap.last_job_id,
        created_by=sitemap.created_by,
        created_at=sitemap.created_at,
        last_read_at=sitemap.last_read_at,
        url_count=sitemap.url_count,
        http_status=sitemap.http_status,
        wire_bytes=sitemap.wire_bytes,
        decoded_bytes=sitemap.decoded_bytes,
        fetch_seconds=sitemap.fetch_seconds,
        lastmod=sitemap.lastmod,
        parent_ids=list(parent_ids),
        error_code=sitemap.error_code,
        error=sitemap.error,
    )
