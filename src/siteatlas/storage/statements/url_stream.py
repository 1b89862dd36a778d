"""Writes new URLs with COPY, as a binary stream.

Twice as fast as an INSERT on the server, with a third of the work in this process (decision 0014).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain, islice, repeat
from struct import Struct
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable
from siteatlas.storage.faults import meaning_of_state
from siteatlas.storage.models import SitemapUrl
from siteatlas.storage.statements.url_rows import UrlRows

COLUMNS = (
    "sitemap_id",
    "url_hash",
    "url",
    "lastmod",
    "changefreq",
    "priority",
    "extras",
    "fingerprint",
    "lastmod_text",
)
ROWS_PER_CHUNK = 1_000
COPY_SECONDS = 30
# SQLAlchemy begins its transaction with the first statement that goes through it.
BEGINNING = select(literal(1))
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
NULL = b"\xff\xff\xff\xff"
JSONB_VERSION = b"\x01"
CACHED_KINDS = 4_096
MICROSECOND = timedelta(microseconds=1)
POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

_row_start = Struct(">hi16si").pack
_hash_and_length = Struct(">qi").pack
_length = Struct(">i").pack
_bigint = Struct(">iq").pack
_real = Struct(">if").pack


async def copy_urls(session: AsyncSession, rows: UrlRows) -> None:
    """Send rows that are not stored yet. DatabaseBusy when one of them turns out to be there."""
    connection = await session.connection()
    driver: Any = (await connection.get_raw_connection()).driver_connection
    if not driver.is_in_transaction():
        await session.execute(BEGINNING)
    try:
        async with _copy_time_limit(driver):
            await driver.copy_to_table(
                SitemapUrl.__tablename__, source=stream(rows), columns=COLUMNS, format="binary"
            )
    except asyncpg.UniqueViolationError as error:
        rows.contested = True
        raise DatabaseBusy from error
    except BaseException as error:
        own = _meaning(error, driver)
        if not isinstance(own, DatabaseBusy):
            # The driver may be in the middle of the copy and cannot run other statements.
            await connection.invalidate()
        if own is None:
            raise
        raise own from error


@asynccontextmanager
async def _copy_time_limit(driver: Any) -> AsyncIterator[None]:
    """The time limit of a COPY statement: TimeoutError, at once if the connection is lost.

    The driver itself would keep waiting for buffer space.
    """
    loop = asyncio.get_running_loop()
    under_way = True
    async with asyncio.timeout(COPY_SECONDS) as limit:

        def expire_copy(_driver: Any) -> None:
            """End a COPY statement whose connection is lost; called by the driver."""
            # The call comes in a later iteration of the loop: the copy may have ended meanwhile.
            if under_way and not limit.expired():
                limit.reschedule(loop.time())

        driver.add_termination_listener(expire_copy)
        try:
            yield
        finally:
            under_way = False
            driver.remove_termination_listener(expire_copy)


def _meaning(error: BaseException, driver: Any) -> DatabaseError | None:
    """Our own error for what ended a copy; None for a bug of ours and for a cancel."""
    if isinstance(error, asyncpg.PostgresError):
        return meaning_of_state(error.sqlstate or "")
    lost = isinstance(error, (TimeoutError, OSError, asyncpg.InternalClientError))
    lost = lost or (isinstance(error, asyncpg.InterfaceError) and driver.is_closed())
    return DatabaseUnavailable() if lost else None


async def stream(rows: UrlRows) -> AsyncIterator[bytes]:
    """All rows with signature and trailer, encoded in chunks; other tasks run in between."""
    yield SIGNATURE
    async for chunk in fair_loop().time_slices(encoded(rows)):
        yield chunk
    yield TRAILER


def encoded(rows: UrlRows) -> Iterator[bytes]:
    """The rows in chunks of a thousand."""
    starts, hashes, endings = _starts(rows.runs), iter(rows.url_hash), _endings(rows)
    for first in range(0, len(rows), ROWS_PER_CHUNK):
        urls = [url.encode() for url in rows.url[first : first + ROWS_PER_CHUNK]]
        fields = zip(
            islice(starts, len(urls)),
            map(_hash_and_length, islice(hashes, len(urls)), map(len, urls)),
            urls,
            islice(endings, len(urls)),
            strict=True,
        )
        yield b"".join(chain.from_iterable(fields))


def _starts(runs: Iterable[tuple[UUID, int]]) -> Iterator[bytes]:
    """What comes before the hash, for each row: the number of fields and the document."""
    for sitemap_id, count in runs:
        yield from repeat(_row_start(len(COLUMNS), 16, sitemap_id.bytes, 8), count)


def _endings(rows: UrlRows) -> Iterator[bytes]:
    """What comes after the URL, for each row."""
    middles = map(_copy_attributes, rows.changefreq, rows.priority, rows.extras)
    parts = zip(rows.lastmod, middles, rows.fingerprint, rows.lastmod_text, strict=True)
    for lastmod, middle, fingerprint, listed in parts:
        end = NULL if listed is None else _copy_field(listed.encode())
        if lastmod is None:
            yield NULL + middle + _bigint(8, fingerprint) + end
        else:
            passed = (lastmod - POSTGRES_EPOCH) // MICROSECOND
            yield _bigint(8, passed) + middle + _bigint(8, fingerprint) + end


def _copy_attributes(changefreq: str | None, priority: float | None, extras: str | None) -> bytes:
    """The columns between `lastmod` and `fingerprint` as fields of a binary COPY."""
    if extras is None:
        return _copy_plain_attributes(changefreq, priority) + NULL
    return _copy_plain_attributes(changefreq, priority) + _copy_field(
        JSONB_VERSION + extras.encode()
    )


@lru_cache(maxsize=CACHED_KINDS)
def _copy_plain_attributes(changefreq: str | None, priority: float | None) -> bytes:
    """The columns `changefreq` and `priority` as fields of a binary COPY."""
    return (NULL if changefreq is None else _copy_field(changefreq.encode())) + (
        NULL if priority is None else _real(4, priority)
    )


def _copy_field(value: bytes) -> bytes:
    """A field of a binary COPY: its length and its bytes."""
    return _length(len(value)) + value
