"""The documents of a site as a tree: roots, and the children of one index page by page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, page_size, text_key
from siteatlas.scanner.events import DiscoveryMethod, SitemapType
from siteatlas.storage.models import Sitemap, SitemapLink, SitemapStatus

CHILDREN_SHOWN = 100


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One document in the tree; `child_count` is there for an index."""

    id: UUID
    url: str
    type: str | None
    status: SitemapStatus
    discovery_method: str
    url_count: int
    missing_count: int
    wire_bytes: int
    lastmod: datetime | None
    http_status: int | None
    error_code: str | None
    gone_at: datetime | None
    child_count: int


async def tree_roots(
    session: AsyncSession, domain_id: UUID, *, cursor: str | None = None
) -> Page[TreeNode]:
    """The documents that no index lists, and the indexes that were found without another index.

    Indexes may list each other; without the second rule, such a site would have no root.
    """
    listed = exists().where(SitemapLink.child_id == Sitemap.id)
    is_entrance = (Sitemap.type == SitemapType.INDEX) & (
        Sitemap.discovery_method != DiscoveryMethod.SITEMAP_INDEX
    )
    scope = CursorScope("roots", (domain_id,))
    return await _nodes(
        session, scope, cursor, Sitemap.domain_id == domain_id, ~listed | is_entrance
    )


async def tree_children(
    session: AsyncSession, parent_id: UUID, *, cursor: str | None = None
) -> Page[TreeNode]:
    """The documents that an index lists."""
    children = select(SitemapLink.child_id).where(SitemapLink.parent_id == parent_id)
    return await _nodes(
        session, CursorScope("children", (parent_id,)), cursor, Sitemap.id.in_(children)
    )


async def _nodes(
    session: AsyncSession, scope: CursorScope, cursor: str | None, *wanted: ColumnElement[bool]
) -> Page[TreeNode]:
    """Documents by address, with the number of their children."""
    after = scope.read(cursor, text_key)
    children = (
        select(func.count())
        .where(SitemapLink.parent_id == Sitemap.id)
        .correlate(Sitemap)
        .scalar_subquery()
    )
    statement = (
        select(
            Sitemap.id,
            Sitemap.url,
            Sitemap.type,
            Sitemap.status,
            Sitemap.discovery_method,
            Sitemap.url_count,
            Sitemap.missing_count,
            Sitemap.wire_bytes,
            Sitemap.lastmod,
            Sitemap.http_status,
            Sitemap.error_code,
            Sitemap.gone_at,
            children,
        )
        .where(*wanted)
        .order_by(Sitemap.url)
    )
    if after is not None:
        statement = statement.where(Sitemap.url > after)
    return await read_page(
        session, statement, page_size(CHILDREN_SHOWN), TreeNode, lambda row: scope.write(row.url)
    )
