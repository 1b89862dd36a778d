"""Write statements for events of documents that belong to a scan.

They are visible once the scan is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Uuid, any_, bindparam, func, insert, literal, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import FeedEventKind
from siteatlas.storage.tables import DOMAINS, FEED_EVENTS, SITEMAPS

_OF_DOCUMENT = (
    select(
        bindparam("of_scan", type_=BigInteger()).label("scan_id"),
        SITEMAPS.c.domain_id,
        DOMAINS.c.domain,
        bindparam("its_kind", type_=FEED_EVENTS.c.kind.type).label("kind"),
        SITEMAPS.c.id.label("sitemap_id"),
        SITEMAPS.c.url.label("sitemap"),
        func.jsonb_build_object(
            literal("type"), SITEMAPS.c.type, literal("url_count"), SITEMAPS.c.url_count
        )
        .op("||", return_type=JSONB())(bindparam("its_data", type_=JSONB()))
        .label("data"),
        SITEMAPS.c.last_complete_at.label("not_after"),
    )
    .join(DOMAINS, DOMAINS.c.id == SITEMAPS.c.domain_id)
    .where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid()))))
    .order_by(SITEMAPS.c.url)
)
INSERT_DOCUMENT_EVENTS = insert(FEED_EVENTS).from_select(
    [column.name for column in _OF_DOCUMENT.selected_columns], _OF_DOCUMENT
)


async def add_document_events(
    session: AsyncSession,
    scan_id: int,
    kind: FeedEventKind,
    sitemap_ids: Sequence[UUID],
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write an event of this kind for each document."""
    if sitemap_ids:
        values = {"of_scan": scan_id, "its_kind": kind, "ids": list(sitemap_ids)}
        await session.execute(INSERT_DOCUMENT_EVENTS, values | {"its_data": dict(data or {})})
