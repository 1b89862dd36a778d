"""Bulk statements on URLs: store new ones, update changed ones, load and count known ones.

New ones go in by `url_stream`, the others as in `url_parameters`. What is also recorded as a
change: `url_changes`.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    LargeBinary,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.statements.url_parameters import unnested_rows
from siteatlas.storage.statements.url_rows import NO_DIGEST, UrlRows
from siteatlas.storage.statements.url_stream import COLUMNS, copy_urls
from siteatlas.storage.tables import SITEMAP_URLS

FINGERPRINTS_PER_QUERY = 20_000
# What a document lists for a URL: the columns after the key and the URL.
LISTED_VALUES = COLUMNS[3:]
# The flags of a loaded entry.
IS_MISSING, IS_REMOVED = 2, 4


class LoadedEntries(NamedTuple):
    """Stored entries of a document, column by column.

    `dates` are those of `date_numbers`; `texts` is None if no date has one. `digests` are 0 for
    entries that are not listed, and empty unless they were asked for.
    """

    hashes: array[int]
    fingerprints: array[int]
    dates: array[int]
    texts: list[str | None] | None
    flags: bytes
    digests: array[int] = array("q")


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


def _stored_entries(sitemap_id: UUID) -> Select[Any]:
    """The rows of a document, with the columns of `LoadedEntries` as the server would send them."""
    urls = SITEMAP_URLS.c
    is_listed = and_(urls.removed_at.is_(None), urls.missing_scan_id.is_(None))
    flags = case(
        (urls.removed_at.is_not(None), bytes([IS_REMOVED])),
        (urls.missing_scan_id.is_not(None), bytes([IS_MISSING])),
        else_=bytes([0]),
    )
    return select(
        func.int8send(urls.url_hash, type_=LargeBinary()).label("hash"),
        func.int8send(urls.fingerprint, type_=LargeBinary()).label("fingerprint"),
        func.timestamptz_send(
            func.coalesce(urls.lastmod, literal_column("'-infinity'::timestamptz")),
            type_=LargeBinary(),
        ).label("date"),
        urls.lastmod_text.label("text"),
        flags.label("flags"),
        func.int8send(
            case((is_listed, func.coalesce(urls.entry_digest, NO_DIGEST)), else_=NO_DIGEST),
            type_=LargeBinary(),
        ).label("digest"),
    ).where(urls.sitemap_id == sitemap_id)


async def load_entries(
    session: AsyncSession, sitemap_id: UUID, *, with_digests: bool = False
) -> LoadedEntries:
    """What is stored of the entries of a document, about in the order in which they were listed.

    Rows are stored in that order and moved only by changes.
    """
    rows = _stored_entries(sitemap_id).order_by(literal_column("sitemap_urls.ctid"))
    return await _load_columns(session, rows, with_digests=with_digests)


async def load_some_entries(
    session: AsyncSession, sitemap_id: UUID, after: int | None
) -> LoadedEntries:
    """One page of the stored entries in the order of their hashes, starting `after` a hash."""
    rows = _stored_entries(sitemap_id).order_by(SITEMAP_URLS.c.url_hash)
    if after is not None:
        rows = rows.where(SITEMAP_URLS.c.url_hash > after)
    return await _load_columns(session, rows.limit(FINGERPRINTS_PER_QUERY))


async def _load_columns(
    session: AsyncSession, rows: Select[Any], *, with_digests: bool = False
) -> LoadedEntries:
    """Each column as one value: neither the driver nor Python makes an object of each number."""
    entries = rows.subquery("entries").c
    names = ["hash", "fingerprint", "date", "flags", *(["digest"] if with_digests else [])]
    columns = [
        func.string_agg(entries[name], cast(b"", LargeBinary()), type_=LargeBinary())
        for name in names
    ]
    texts = case((func.count(entries.text) > 0, func.array_agg(entries.text, type_=ARRAY(Text()))))
    *found, texts_found = (await session.execute(select(*columns, texts))).one()
    hashes, fingerprints, dates, flags, *digests = (column or b"" for column in found)
    return LoadedEntries(
        _numbers(hashes),
        _numbers(fingerprints),
        _numbers(dates),
        texts_found,
        flags,
        *map(_numbers, digests),
    )


def _numbers(sent: bytes) -> array[int]:
    """64-bit numbers that the server sent in network byte order."""
    numbers = array("q", sent)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
