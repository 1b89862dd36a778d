"""Statements on documents that a scan did not read, and on those that are gone or back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Uuid, and_, any_, bindparam, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import Candidate, SitemapScanState
from siteatlas.storage.statements.known_sitemaps import DONE
from siteatlas.storage.statements.sitemaps import READ
from siteatlas.storage.tables import SCANS, SITEMAP_LINKS, SITEMAP_SCANS, SITEMAPS, table_of

MAX_LOADED = 10_000
CANDIDATES = table_of(Candidate)
_DOMAIN = bindparam("of_domain", type_=Uuid())
_SCAN = bindparam("of_scan", type_=BigInteger())
_IDS = bindparam("ids", type_=ARRAY(Uuid()))
IN_SCAN = (SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id) & (SITEMAP_SCANS.c.scan_id == _SCAN)
WAS_READ = SITEMAP_SCANS.c.state.in_(READ)


@dataclass(frozen=True, slots=True)
class UnreadDocument:
    """A document that is not gone and that a scan did not read.

    `state` is None if the scan never came across it. `candidate_status` is the HTTP status of its
    address if the scan tried that as a candidate.
    """

    id: UUID
    url: str
    requested_url: str | None
    discovery_method: str
    state: SitemapScanState | None
    http_status: int | None
    error_code: str | None
    candidate_status: int | None
    url_count: int
    last_complete_at: datetime | None
    vanished_at: datetime | None
    vanished_scan_started_at: datetime | None


@dataclass(frozen=True, slots=True)
class ParentLink:
    """An index that has listed a document; whether the scan has read all of it, or it is gone."""

    child_id: UUID
    parent_id: UUID
    is_read: bool
    is_gone: bool


LOAD_UNREAD = (
    select(
        SITEMAPS.c.id,
        SITEMAPS.c.url,
        SITEMAPS.c.requested_url,
        SITEMAPS.c.discovery_method,
        SITEMAP_SCANS.c.state,
        SITEMAP_SCANS.c.http_status,
        SITEMAP_SCANS.c.error_code,
        CANDIDATES.c.http_status.label("candidate_status"),
        SITEMAPS.c.url_count,
        SITEMAPS.c.last_complete_at,
        SITEMAPS.c.vanished_at,
        SCANS.c.started_at.label("vanished_scan_started_at"),
    )
    .outerjoin(SITEMAP_SCANS, IN_SCAN)
    .outerjoin(SCANS, SCANS.c.id == SITEMAPS.c.vanished_scan_id)
    .outerjoin(
        CANDIDATES,
        (CANDIDATES.c.domain_id == SITEMAPS.c.domain_id)
        & (CANDIDATES.c.url_hash == SITEMAPS.c.url_hash)
        & (CANDIDATES.c.scan_id == _SCAN),
    )
    .where(
        SITEMAPS.c.domain_id == _DOMAIN,
        SITEMAPS.c.gone_at.is_(None),
        or_(SITEMAP_SCANS.c.state.is_(None), ~WAS_READ),
    )
    .order_by(SITEMAPS.c.vanished_at.asc().nulls_first(), SITEMAPS.c.url)
    .limit(MAX_LOADED)
)
LOAD_INCOMPLETE = (
    select(SITEMAPS.c.id)
    .join(SITEMAP_SCANS, IN_SCAN)
    .where(SITEMAP_SCANS.c.state.not_in(DONE), SITEMAPS.c.gone_at.is_(None))
    .limit(MAX_LOADED)
)
_PARENT_SCANS = SITEMAP_SCANS.alias("parent_scans")
# What an unchanged index lists is on its links; any other document lists no documents.
_NAMES_ALL = or_(
    _PARENT_SCANS.c.state == SitemapScanState.COMPLETE,
    and_(_PARENT_SCANS.c.state == SitemapScanState.UNCHANGED, SITEMAPS.c.type != "index"),
)
LOAD_PARENTS = (
    select(
        SITEMAP_LINKS.c.child_id,
        SITEMAP_LINKS.c.parent_id,
        func.coalesce(_NAMES_ALL, False).label("is_read"),
        SITEMAPS.c.gone_at.is_not(None).label("is_gone"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_LINKS.c.parent_id)
    .outerjoin(
        _PARENT_SCANS,
        (_PARENT_SCANS.c.sitemap_id == SITEMAP_LINKS.c.parent_id)
        & (_PARENT_SCANS.c.scan_id == _SCAN),
    )
    .where(SITEMAP_LINKS.c.child_id == any_(_IDS))
)
LOOK_UP_IDS = select(SITEMAPS.c.id).where(
    SITEMAPS.c.domain_id == _DOMAIN, SITEMAPS.c.url_hash == bindparam("its_hash")
)
MARK_VANISHED = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(_IDS), SITEMAPS.c.vanished_at.is_(None))
    .values(vanished_at=func.now(), vanished_scan_id=_SCAN)
)
MARK_GONE = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(_IDS), SITEMAPS.c.gone_at.is_(None))
    .values(gone_at=func.now(), url_count=0, missing_count=0)
    .returning(SITEMAPS.c.id, SITEMAPS.c.type)
)
_RETURNED = (
    select(SITEMAPS.c.id, SITEMAPS.c.gone_at)
    .join(SITEMAP_SCANS, IN_SCAN)
    .where(
        SITEMAPS.c.domain_id == _DOMAIN,
        WAS_READ,
        or_(SITEMAPS.c.gone_at.is_not(None), SITEMAPS.c.vanished_at.is_not(None)),
    )
    .cte("returned")
)
MARK_RETURNED = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == _RETURNED.c.id)
    .values(gone_at=None, vanished_at=None, vanished_scan_id=None)
    .returning(SITEMAPS.c.id, _RETURNED.c.gone_at)
)


async def load_unread_documents(
    session: AsyncSession, domain_id: UUID, scan_id: int
) -> list[UnreadDocument]:
    """The documents of a site that are not gone and that a scan did not read."""
    rows = await session.execute(LOAD_UNREAD, {"of_domain": domain_id, "of_scan": scan_id})
    return [UnreadDocument(**row) for row in rows.mappings()]


async def load_incomplete(session: AsyncSession, scan_id: int) -> list[UUID]:
    """The documents that a scan requested and did not read in full; gone ones are left out."""
    return list((await session.scalars(LOAD_INCOMPLETE, {"of_scan": scan_id})).all())


async def load_parents(
    session: AsyncSession, scan_id: int, children: Collection[UUID]
) -> list[ParentLink]:
    """The indexes that have listed some documents."""
    rows = await session.execute(LOAD_PARENTS, {"of_scan": scan_id, "ids": list(children)})
    return [ParentLink(*row) for row in rows.all()]


async def is_other_document(
    session: AsyncSession, domain_id: UUID, url_hash: int, document_id: UUID
) -> bool:
    """Whether the address with this hash is that of another document of the site."""
    values: dict[str, Any] = {"of_domain": domain_id, "its_hash": url_hash}
    found = (await session.scalars(LOOK_UP_IDS, values)).first()
    return found is not None and found != document_id


async def mark_vanished(session: AsyncSession, scan_id: int, sitemap_ids: Sequence[UUID]) -> None:
    """Note that a scan found documents vanished; earlier notes are kept."""
    if sitemap_ids:
        await session.execute(MARK_VANISHED, {"of_scan": scan_id, "ids": list(sitemap_ids)})


async def mark_gone(session: AsyncSession, sitemap_ids: Sequence[UUID]) -> list[UUID]:
    """Record that documents are gone; return those that had ever been read."""
    if not sitemap_ids:
        return []
    rows = (await session.execute(MARK_GONE, {"ids": list(sitemap_ids)})).all()
    return [row.id for row in rows if row.type is not None]


async def mark_returned(session: AsyncSession, domain_id: UUID, scan_id: int) -> list[UUID]:
    """Forget that documents had vanished which a scan has read; return those that were gone."""
    values = {"of_domain": domain_id, "of_scan": scan_id}
    rows = (await session.execute(MARK_RETURNED, values)).all()
    return [row.id for row in rows if row.gone_at is not None]
