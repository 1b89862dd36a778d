"""What is stored of a site's documents, as far as a scan needs it.

A site of ordinary size is loaded whole. Of one with more documents than a scan may read, only
those that this scan has touched are loaded; the others are looked up when they are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, any_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import SitemapScanState
from siteatlas.storage.tables import SITEMAP_LINKS, SITEMAP_SCANS, SITEMAPS

MAX_LOADED = 10_000
# A resumed scan has touched no more documents than it may read, but for redirects.
MAX_TOUCHED = 2 * MAX_LOADED
MAX_LINKS_LOADED = 10 * MAX_LOADED
DONE = (SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED)

OF_THIS_SCAN = (SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id) & (
    SITEMAP_SCANS.c.scan_id == bindparam("scan")
)
# Statements of every scan are built once: building one takes as long as running it.
COLUMNS = select(
    SITEMAPS.c.id,
    SITEMAPS.c.url,
    SITEMAPS.c.requested_url,
    SITEMAPS.c.discovery_method,
    SITEMAP_SCANS.c.state,
    SITEMAP_SCANS.c.url_count.label("read_count"),
)
LOAD = (
    COLUMNS.outerjoin_from(SITEMAPS, SITEMAP_SCANS, OF_THIS_SCAN)
    .where(SITEMAPS.c.domain_id == bindparam("domain"))
    .limit(MAX_LOADED + 1)
)
LOAD_TOUCHED = COLUMNS.join_from(SITEMAPS, SITEMAP_SCANS, OF_THIS_SCAN).limit(MAX_TOUCHED)
LOOK_UP = COLUMNS.outerjoin_from(SITEMAPS, SITEMAP_SCANS, OF_THIS_SCAN).where(
    SITEMAPS.c.domain_id == bindparam("domain"),
    SITEMAPS.c.url_hash == any_(bindparam("hashes", type_=ARRAY(BigInteger()))),
)
COUNT = select(func.count()).where(SITEMAPS.c.domain_id == bindparam("domain"))
LOAD_CHILDREN = (
    select(SITEMAP_LINKS.c.parent_id, SITEMAP_LINKS.c.child_id)
    .join(SITEMAP_SCANS, SITEMAP_SCANS.c.sitemap_id == SITEMAP_LINKS.c.parent_id)
    .where(SITEMAP_SCANS.c.scan_id == bindparam("scan"), SITEMAP_SCANS.c.state.in_(DONE))
    .limit(MAX_LINKS_LOADED)
)


@dataclass(frozen=True, slots=True)
class KnownSitemap:
    """A stored document; `read_count` is what the current scan has read in it.

    `children` are there only for an index that a resumed scan has read.
    """

    id: UUID
    url: str
    requested_url: str | None
    discovery_method: str
    state: SitemapScanState | None
    read_count: int = 0
    children: tuple[UUID, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class KnownSitemaps:
    """The loaded documents of a site, how many it has, and whether these are all."""

    by_id: dict[UUID, KnownSitemap] = field(default_factory=dict)
    stored: int = 0

    @property
    def has_all_rows(self) -> bool:
        """Whether the statement loaded the rows of all sitemaps of the domain."""
        return len(self.by_id) >= self.stored


async def load_sitemaps(
    session: AsyncSession, domain_id: UUID, scan_id: int, *, resumed: bool
) -> KnownSitemaps:
    """What a scan must know of a site before it begins or is resumed."""
    values = {"domain": domain_id, "scan": scan_id}
    rows: Sequence[Any] = (await session.execute(LOAD, values)).all()
    stored = len(rows)
    if stored > MAX_LOADED:
        stored = (await session.execute(COUNT, values)).scalar_one()
        rows = (await session.execute(LOAD_TOUCHED, values)).all() if resumed else ()
    children = await _load_children(session, scan_id) if resumed and rows else {}
    return KnownSitemaps(
        {row.id: known_sitemap(row, children.get(row.id, ())) for row in rows}, stored
    )


async def look_up_sitemaps(
    session: AsyncSession, domain_id: UUID, scan_id: int, hashes: Sequence[int]
) -> list[KnownSitemap]:
    """The stored documents among those with these hashes of their addresses."""
    values = {"domain": domain_id, "scan": scan_id, "hashes": list(hashes)}
    return [known_sitemap(row) for row in (await session.execute(LOOK_UP, values)).all()]


async def _load_children(session: AsyncSession, scan_id: int) -> dict[UUID, list[UUID]]:
    """The ids of the documents that each index of a scan lists, by the id of the index."""
    children: dict[UUID, list[UUID]] = {}
    for parent_id, child_id in (await session.execute(LOAD_CHILDREN, {"scan": scan_id})).all():
        children.setdefault(parent_id, []).append(child_id)
    return children


def known_sitemap(row: Any, children: Iterable[UUID] = ()) -> KnownSitemap:
    """A row with the columns of `COLUMNS`, and the documents that it lists."""
    return KnownSitemap(
        id=row.id,
        url=row.url,
        requested_url=row.requested_url,
        discovery_method=row.discovery_method,
        state=row.state,
        read_count=row.read_count or 0,
        children=tuple(children),
    )
