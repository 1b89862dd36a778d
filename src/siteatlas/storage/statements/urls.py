"""Bulk statements on URLs: store new ones, update changed ones, load and count known ones.

New ones go in by `url_stream`, the others as in `url_parameters`. What is also recorded as a
change: `url_changes`.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Double,
    Integer,
    Text,
    case,
    cast,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.statements.url_parameters import unnested_rows
from siteatlas.storage.statements.url_rows import NO_DATE, POSTGRES_EPOCH, UrlRows
from siteatlas.storage.statements.url_stream import COLUMNS, copy_urls
from siteatlas.storage.tables import SITEMAP_URLS

FINGERPRINTS_PER_QUERY = 20_000
LISTED_VALUES = ("lastmod", "changefreq", "priority", "extras", "fingerprint", "lastmod_text")
# The flags of a loaded entry.
IS_MISSING, IS_REMOVED = 2, 4


class LoadedEntries(NamedTuple):
    """Stored entries of a document, column by column.

    `dates` are those of `date_numbers`.
    """

    hashes: list[int]
    fingerprints: list[int]
    dates: list[int]
    texts: list[str | None]
    flags: list[int]


def _insert_urls_statement() -> Any:
    """The INSERT into `sitemap_urls`, sorted by key; URLs that are stored stay as they are."""
    rows = unnested_rows()
    columns = [rows.c[name] for name in COLUMNS]
    ordered = select(*columns).order_by(rows.c.sitemap_id, rows.c.url_hash)
    return (
        insert(SITEMAP_URLS)
        .from_select(list(COLUMNS), ordered)
        .on_conflict_do_nothing(index_elements=[SITEMAP_URLS.c.sitemap_id, SITEMAP_URLS.c.url_hash])
    )


def _update_urls_statement() -> Any:
    """The UPDATE of changed rows of `sitemap_urls`."""
    rows = unnested_rows()
    return (
        update(SITEMAP_URLS)
        .where(
            SITEMAP_URLS.c.sitemap_id == rows.c.sitemap_id,
            SITEMAP_URLS.c.url_hash == rows.c.url_hash,
        )
        .values(
            **{name: rows.c[name] for name in LISTED_VALUES}, missing_scan_id=None, removed_at=None
        )
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
    """Update the values of changed URLs, and restore those that were missing or removed."""
    if rows:
        await session.execute(UPDATE_ROWS, rows.parameters())


def _entry_columns() -> tuple[ColumnElement[Any], ...]:
    """The columns of `LoadedEntries`."""
    # Exact up to the year 2255; after it, an entry may seem to be changed, and is compared again
    # by the statement that updates it.
    seconds: ColumnElement[float] = func.date_part("epoch", SITEMAP_URLS.c.lastmod, type_=Double())
    date = cast((seconds - POSTGRES_EPOCH.timestamp()) * 1_000_000.0, BigInteger())
    flags = case(
        (SITEMAP_URLS.c.removed_at.is_not(None), IS_REMOVED),
        (SITEMAP_URLS.c.missing_scan_id.is_not(None), IS_MISSING),
        else_=0,
    )
    return (
        SITEMAP_URLS.c.url_hash,
        SITEMAP_URLS.c.fingerprint,
        func.coalesce(date, literal(NO_DATE, BigInteger())),
        SITEMAP_URLS.c.lastmod_text,
        flags,
    )


async def load_entries(session: AsyncSession, sitemap_id: UUID) -> LoadedEntries:
    """What is stored of the entries of a document.

    Arrays instead of rows: the driver makes them several times faster.
    """
    types: tuple[Any, ...] = (BigInteger(), BigInteger(), BigInteger(), Text(), Integer())
    arrays = (
        func.array_agg(column, type_=ARRAY(type_))
        for column, type_ in zip(_entry_columns(), types, strict=True)
    )
    statement = select(*arrays).where(SITEMAP_URLS.c.sitemap_id == sitemap_id)
    row = (await session.execute(statement)).one()
    return LoadedEntries(*(column or [] for column in row))


async def load_some_entries(
    session: AsyncSession, sitemap_id: UUID, after: int | None
) -> LoadedEntries:
    """One page of the stored entries in the order of their hashes, starting `after` a hash."""
    statement = (
        select(*_entry_columns())
        .where(SITEMAP_URLS.c.sitemap_id == sitemap_id)
        .order_by(SITEMAP_URLS.c.url_hash)
        .limit(FINGERPRINTS_PER_QUERY)
    )
    if after is not None:
        statement = statement.where(SITEMAP_URLS.c.url_hash > after)
    rows = (await session.execute(statement)).all()
    columns = list(zip(*rows, strict=True)) or [()] * len(LoadedEntries._fields)
    return LoadedEntries(*(list(column) for column in columns))
