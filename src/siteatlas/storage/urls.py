"""Bulk statements on listings: load what is known, insert what is new, update what changed.

Arrays go in as one parameter per column and are unnested on the server: several times faster than
row-wise inserts, and still one ORM statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, DateTime, Text, Uuid, cast, func, select, update
from sqlalchemy import bindparam as bind
from sqlalchemy.dialects.postgresql import JSONB, REAL, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import Subquery
from sqlalchemy.types import TypeEngine

from siteatlas.storage.models import Base, Sitemap, SitemapUrl

# The table itself: an ORM entity would turn array parameters into a row-wise bulk insert.
TABLE = Base.metadata.tables[SitemapUrl.__tablename__]

COLUMNS: Mapping[str, TypeEngine[Any]] = {
    "sitemap_id": Uuid(),
    "url_hash": BigInteger(),
    "url": Text(),
    "lastmod": DateTime(timezone=True),
    "changefreq": Text(),
    "priority": REAL(),
    "extras": Text(),
    "fingerprint": BigInteger(),
}


@dataclass(slots=True)
class UrlRows:
    """Rows of `sitemap_urls`, column by column. `extras` are JSON texts."""

    sitemap_id: list[UUID] = field(default_factory=list)
    url_hash: list[int] = field(default_factory=list)
    url: list[str] = field(default_factory=list)
    lastmod: list[datetime | None] = field(default_factory=list)
    changefreq: list[str | None] = field(default_factory=list)
    priority: list[float | None] = field(default_factory=list)
    extras: list[str | None] = field(default_factory=list)
    fingerprint: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.url_hash)

    def columns(self) -> dict[str, list[Any]]:
        """All columns by name, each of the same length."""
        return {name: getattr(self, name) for name in COLUMNS}


def _unnested() -> Subquery:
    arrays = [cast(bind(f"p_{name}"), ARRAY(type_)).label(name) for name, type_ in COLUMNS.items()]
    rows = func.unnest(*arrays).table_valued(*COLUMNS, name="listed").render_derived()
    return select(rows).subquery("rows")


def _insert_statement() -> Any:
    rows = _unnested()
    picked = [cast(rows.c.extras, JSONB) if name == "extras" else rows.c[name] for name in COLUMNS]
    return (
        insert(TABLE)
        .from_select(list(COLUMNS), select(*picked).order_by(rows.c.sitemap_id, rows.c.url_hash))
        .on_conflict_do_nothing(index_elements=[TABLE.c.sitemap_id, TABLE.c.url_hash])
    )


def _update_statement() -> Any:
    rows = _unnested()
    changed = {name: rows.c[name] for name in ("lastmod", "changefreq", "priority", "fingerprint")}
    return (
        update(TABLE)
        .where(TABLE.c.sitemap_id == rows.c.sitemap_id, TABLE.c.url_hash == rows.c.url_hash)
        .values(
            **changed,
            extras=cast(rows.c.extras, JSONB),
            missing_scan_id=None,
            removed_at=None,
        )
    )


INSERT_ROWS = _insert_statement()
UPDATE_ROWS = _update_statement()


def _parameters(rows: UrlRows) -> dict[str, list[Any]]:
    return {f"p_{name}": values for name, values in rows.columns().items()}


async def insert_urls(session: AsyncSession, rows: UrlRows) -> None:
    """Insert listings; the server sorts them by key. One that is there already stays as it is."""
    if rows:
        await session.execute(INSERT_ROWS, _parameters(rows))


async def update_urls(session: AsyncSession, rows: UrlRows) -> None:
    """Write what changed beside listings, and bring back those that were gone."""
    if rows:
        await session.execute(UPDATE_ROWS, _parameters(rows))


async def load_fingerprints(session: AsyncSession, sitemap_id: UUID) -> dict[int, int | None]:
    """What is stored of a document: fingerprint by hash, None for a listing that is gone."""
    statement = select(SitemapUrl.url_hash, SitemapUrl.fingerprint, SitemapUrl.removed_at).where(
        SitemapUrl.sitemap_id == sitemap_id
    )
    rows = (await session.execute(statement)).all()
    return {h: None if removed else fingerprint for h, fingerprint, removed in rows}


async def count_urls(session: AsyncSession, sitemap_ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many listings each of these documents has now."""
    statement = (
        select(SitemapUrl.sitemap_id, func.count().label("listings"))
        .where(SitemapUrl.sitemap_id.in_(sitemap_ids), SitemapUrl.removed_at.is_(None))
        .group_by(SitemapUrl.sitemap_id)
    )
    counts = {row.sitemap_id: row.listings for row in (await session.execute(statement)).all()}
    return {sitemap_id: counts.get(sitemap_id, 0) for sitemap_id in sitemap_ids}


async def count_distinct_urls(session: AsyncSession, domain_id: UUID) -> int:
    """How many different URLs a site lists in all its documents."""
    statement = (
        select(func.count(SitemapUrl.url_hash.distinct()))
        .join(Sitemap, Sitemap.id == SitemapUrl.sitemap_id)
        .where(Sitemap.domain_id == domain_id, SitemapUrl.removed_at.is_(None))
    )
    return (await session.execute(statement)).scalar_one()
