"""What is stored of a site's documents, as far as a scan needs it.

A site of ordinary size is loaded whole. Of one with more documents than a scan may read, only
those that this scan has touched are loaded; the others are looked up when they are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Uuid, any_, bindparam, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.autocommit import Reader
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
SITEMAP_COLUMNS = (
    SITEMAPS.c.id,
    SITEMAPS.c.url,
    SITEMAPS.c.requested_url,
    SITEMAPS.c.discovery_method,
    SITEMAPS.c.type,
    SITEMAPS.c.lastmod,
    SITEMAPS.c.etag,
    SITEMAPS.c.last_modified,
    SITEMAPS.c.content_hash,
    SITEMAPS.c.wire_bytes,
    SITEMAPS.c.read_version,
    SITEMAPS.c.not_modified_count,
    SITEMAPS.c.validator_lies,
    (SITEMAPS.c.url_count - SITEMAPS.c.missing_count).label("shown_count"),
    or_(SITEMAPS.c.gone_at.is_not(None), SITEMAPS.c.vanished_at.is_not(None)).label("is_gone"),
)
COLUMNS = select(
    *SITEMAP_COLUMNS,
    SITEMAP_SCANS.c.state,
    func.coalesce(SITEMAP_SCANS.c.url_count, 0).label("read_count"),
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
    .where(SITEMAP_LINKS.c.parent_id == any_(bindparam("parents", type_=ARRAY(Uuid()))))
    .order_by(SITEMAP_LINKS.c.parent_id, SITEMAP_LINKS.c.child_id)
    .limit(MAX_LINKS_LOADED + 1)
)
INDEX = "index"


class KnownSitemap(NamedTuple):
    """A stored document; `read_count` is what the current scan has read in it.

    `lastmod` is that which an index lists for it. `shown_count` is how many URLs it showed when it
    was last read. `is_gone`: it vanished, or may have. `children` are what an index lists; they are
    None if they were not loaded. The fields are in the order of the selected columns.
    """

    id: UUID
    url: str
    requested_url: str | None
    discovery_method: str
    type: str | None = None
    lastmod: datetime | None = None
    etag: str | None = None
    last_modified: str | None = None
    content_hash: str | None = None
    wire_bytes: int = 0
    read_version: int | None = None
    not_modified_count: int = 0
    validator_lies: int = 0
    shown_count: int = 0
    is_gone: bool = False
    state: SitemapScanState | None = None
    read_count: int = 0
    children: tuple[UUID, ...] | None = None


@dataclass(slots=True)
class KnownSitemaps:
    """The loaded documents of a site, how many it has, and whether these are all."""

    by_id: dict[UUID, KnownSitemap] = field(default_factory=dict)
    stored: int = 0
    has_all_rows: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_all_rows = len(self.by_id) >= self.stored

    def forget_rows(self) -> None:
        """Drop the loaded documents, once what is needed of them is kept elsewhere."""
        self.by_id = {}


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
    loaded = {row.id: known_sitemap(row) for row in rows}
    return KnownSitemaps(await with_children(session, loaded), stored)


async def with_children(
    session: Reader, known: Mapping[UUID, KnownSitemap]
) -> dict[UUID, KnownSitemap]:
    """The loaded documents, with what those of them list that are indexes.

    Without, if there are too many links: an index is then read, whether it has changed or not.
    """
    indexes = [one.id for one in known.values() if one.type == INDEX]
    if not indexes:
        return dict(known)
    rows = (await session.execute(LOAD_CHILDREN, {"parents": indexes})).all()
    if len(rows) > MAX_LINKS_LOADED:
        return dict(known)
    children: dict[UUID, list[UUID]] = {parent_id: [] for parent_id in indexes}
    for parent_id, child_id in rows:
        children[parent_id].append(child_id)
    listed = {key: known[key]._replace(children=tuple(ids)) for key, ids in children.items()}
    return {**known, **listed}


async def look_up_sitemaps(
    session: AsyncSession, domain_id: UUID, scan_id: int, hashes: Sequence[int]
) -> list[KnownSitemap]:
    """The stored documents among those with these hashes of their addresses."""
    values = {"domain": domain_id, "scan": scan_id, "hashes": list(hashes)}
    return [known_sitemap(row) for row in (await session.execute(LOOK_UP, values)).all()]


def known_sitemap(row: Sequence[Any]) -> KnownSitemap:
    """A row that ends with `SITEMAP_COLUMNS`, `state` and `read_count`."""
    return KnownSitemap(*row[-len(KnownSitemap._fields) + 1 :])
