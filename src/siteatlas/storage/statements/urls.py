"""Bulk statements on URLs: load known ones, store new ones, update changed ones.

New ones go in by `url_stream`. For the others a column goes in as one parameter and is unnested on
the server: several times faster than row by row. Texts travel joined by line breaks, which no URL
can hold, because the driver looks at every element of an array. Numbers travel as arrays, and so
do texts of dates, which may be anything.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    DateTime,
    Integer,
    Text,
    Uuid,
    case,
    cast,
    func,
    literal,
    select,
    update,
)
from sqlalchemy import bindparam as bind
from sqlalchemy.dialects.postgresql import JSONB, REAL, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.selectable import Subquery

from siteatlas.storage.models import Sitemap, SitemapUrl
from siteatlas.storage.statements.url_rows import LINE_BREAK, UrlRows
from siteatlas.storage.statements.url_stream import copy_urls
from siteatlas.storage.tables import SITEMAP_URLS

FINGERPRINTS_PER_QUERY = 20_000


def _text_column_parameter(name: str) -> ColumnElement[Any]:
    """A column of URL rows as a statement parameter: lines, which the server splits."""
    return func.string_to_array(bind(f"p_{name}", type_=Text()), literal(LINE_BREAK), literal(""))


def _array_column_parameter(name: str, type_: Any) -> ColumnElement[Any]:
    """A column of URL rows as a statement parameter: an array."""
    return bind(f"p_{name}", type_=ARRAY(type_))


def _unnested() -> Subquery:
    """The parameters as rows with the types of the table."""
    columns = {
        "place": _text_column_parameter("place"),
        "url_hash": _array_column_parameter("url_hash", BigInteger()),
        "url": _text_column_parameter("url"),
        "lastmod": _array_column_parameter("lastmod", DateTime(timezone=True)),
        "changefreq": _text_column_parameter("changefreq"),
        "priority": _text_column_parameter("priority"),
        "extras": _text_column_parameter("extras"),
        "fingerprint": _array_column_parameter("fingerprint", BigInteger()),
        "lastmod_text": _array_column_parameter("lastmod_text", Text()),
    }
    rows = func.unnest(*columns.values()).table_valued(*columns, name="listed").render_derived()
    sitemap_ids = Grouping(bind("p_sitemap_ids", type_=ARRAY(Uuid())))
    return select(
        sitemap_ids[cast(rows.c.place, Integer)].label("sitemap_id"),
        rows.c.url_hash,
        rows.c.url,
        rows.c.lastmod,
        rows.c.changefreq,
        cast(rows.c.priority, REAL).label("priority"),
        cast(rows.c.extras, JSONB).label("extras"),
        rows.c.fingerprint,
        rows.c.lastmod_text,
    ).subquery("rows")


def _insert_urls_statement() -> Any:
    """The INSERT into `sitemap_urls`, sorted by key; URLs that are stored stay as they are."""
    rows = _unnested()
    ordered = select(rows).order_by(rows.c.sitemap_id, rows.c.url_hash)
    return (
        insert(SITEMAP_URLS)
        .from_select([column.name for column in rows.c], ordered)
        .on_conflict_do_nothing(index_elements=[SITEMAP_URLS.c.sitemap_id, SITEMAP_URLS.c.url_hash])
    )


def _update_urls_statement() -> Any:
    """The UPDATE of changed rows of `sitemap_urls`."""
    rows = _unnested()
    names = ("lastmod", "changefreq", "priority", "extras", "fingerprint", "lastmod_text")
    return (
        update(SITEMAP_URLS)
        .where(
            SITEMAP_URLS.c.sitemap_id == rows.c.sitemap_id,
            SITEMAP_URLS.c.url_hash == rows.c.url_hash,
        )
        .values(**{name: rows.c[name] for name in names}, missing_scan_id=None, removed_at=None)
    )


INSERT_ROWS = _insert_urls_statement()
UPDATE_ROWS = _update_urls_statement()


async def insert_urls(session: AsyncSession, rows: UrlRows) -> None:
    """Store new URLs. A URL that already exists is not changed.

    The fast way fails when another transaction stored one of them meanwhile: DatabaseBusy, and
    the repetition takes the careful way, in which the server sorts them by key.
    """
    if rows.contested:
        await session.execute(INSERT_ROWS, rows.parameters())
    elif rows:
        await copy_urls(session, rows)


async def update_urls(session: AsyncSession, rows: UrlRows) -> None:
    """Update the values of changed URLs, and restore those that were gone."""
    if rows:
        await session.execute(UPDATE_ROWS, rows.parameters())


async def load_fingerprints(session: AsyncSession, sitemap_id: UUID) -> dict[int, int | None]:
    """What is stored of a document: fingerprint by hash, None for a URL that is gone.

    Two arrays instead of rows: the driver makes them several times faster.
    """
    fingerprint = case(
        (SITEMAP_URLS.c.removed_at.is_(None), SITEMAP_URLS.c.fingerprint), else_=None
    )
    statement = select(
        func.array_agg(SITEMAP_URLS.c.url_hash, type_=ARRAY(BigInteger())),
        func.array_agg(fingerprint, type_=ARRAY(BigInteger())),
    ).where(SITEMAP_URLS.c.sitemap_id == sitemap_id)
    hashes, fingerprints = (await session.execute(statement)).one()
    return dict(zip(hashes or (), fingerprints or (), strict=True))


async def load_some_fingerprints(
    session: AsyncSession, sitemap_id: UUID, after: int | None
) -> tuple[list[int], list[int | None]]:
    """One page of the stored fingerprints in the order of their hashes, starting `after` a hash."""
    statement = (
        select(SITEMAP_URLS.c.url_hash, SITEMAP_URLS.c.fingerprint, SITEMAP_URLS.c.removed_at)
        .where(SITEMAP_URLS.c.sitemap_id == sitemap_id)
        .order_by(SITEMAP_URLS.c.url_hash)
        .limit(FINGERPRINTS_PER_QUERY)
    )
    if after is not None:
        statement = statement.where(SITEMAP_URLS.c.url_hash > after)
    rows = (await session.execute(statement)).all()
    return [row[0] for row in rows], [None if row[2] else row[1] for row in rows]


async def count_distinct_urls(session: AsyncSession, domain_id: UUID) -> int:
    """How many different URLs a site lists in all its documents."""
    statement = (
        select(func.count(SitemapUrl.url_hash.distinct()))
        .join(Sitemap, Sitemap.id == SitemapUrl.sitemap_id)
        .where(Sitemap.domain_id == domain_id, SitemapUrl.removed_at.is_(None))
    )
    return (await session.execute(statement)).scalar_one()
