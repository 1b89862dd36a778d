"""Write statements for events of documents and domains that belong to a scan.

They are visible once the scan is published. Events with a number of their own are written by
`feed_numbers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Uuid, any_, bindparam, case, func, insert, literal, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import FeedEventKind
from siteatlas.storage.statements.known_sitemaps import DONE
from siteatlas.storage.tables import DOMAINS, FEED_EVENTS, SITEMAP_SCANS, SITEMAPS

_SCAN = bindparam("of_scan", type_=BigInteger())
_KIND = bindparam("its_kind", type_=FEED_EVENTS.c.kind.type)
_DATA = bindparam("its_data", type_=JSONB())
_OF_DOCUMENT = select(
    _SCAN.label("scan_id"),
    SITEMAPS.c.domain_id,
    DOMAINS.c.domain,
    _KIND.label("kind"),
    SITEMAPS.c.id.label("sitemap_id"),
    SITEMAPS.c.url.label("sitemap"),
    func.jsonb_build_object(
        literal("type"), SITEMAPS.c.type, literal("url_count"), SITEMAPS.c.url_count
    )
    .op("||", return_type=JSONB())(_DATA)
    .label("data"),
    case((SITEMAPS.c.vanished_at.is_not(None), SITEMAPS.c.last_complete_at)).label("not_before"),
    func.coalesce(SITEMAPS.c.vanished_at, SITEMAPS.c.last_complete_at).label("not_after"),
).join(DOMAINS, DOMAINS.c.id == SITEMAPS.c.domain_id)
INSERT_DOCUMENT_EVENTS = insert(FEED_EVENTS).from_select(
    [column.name for column in _OF_DOCUMENT.selected_columns],
    _OF_DOCUMENT.where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid())))).order_by(
        SITEMAPS.c.url
    ),
)
# In one statement, for every first scan ends with it.
INSERT_BASELINES = insert(FEED_EVENTS).from_select(
    [column.name for column in _OF_DOCUMENT.selected_columns],
    _OF_DOCUMENT.join(SITEMAP_SCANS, SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id)
    .where(SITEMAP_SCANS.c.scan_id == _SCAN, SITEMAP_SCANS.c.state.in_(DONE))
    .order_by(SITEMAPS.c.url),
)
_OF_DOMAIN = select(
    _SCAN.label("scan_id"),
    DOMAINS.c.id.label("domain_id"),
    DOMAINS.c.domain,
    _KIND.label("kind"),
    _DATA.label("data"),
    func.now().label("not_after"),
).where(DOMAINS.c.id == bindparam("of_domain", type_=Uuid()))
INSERT_DOMAIN_EVENT = insert(FEED_EVENTS).from_select(
    [column.name for column in _OF_DOMAIN.selected_columns], _OF_DOMAIN
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


async def add_baselines(session: AsyncSession, scan_id: int) -> None:
    """Write `baseline` for each document that a scan has read completely or that is unchanged."""
    values = {"of_scan": scan_id, "its_kind": FeedEventKind.BASELINE, "its_data": {}}
    await session.execute(INSERT_BASELINES, values)


async def add_domain_event(
    session: AsyncSession,
    scan_id: int,
    domain_id: UUID,
    kind: FeedEventKind,
    data: Mapping[str, Any],
) -> None:
    """Write an event of a site."""
    values = {"of_scan": scan_id, "of_domain": domain_id, "its_kind": kind, "its_data": dict(data)}
    await session.execute(INSERT_DOMAIN_EVENT, values)
