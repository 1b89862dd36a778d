"""Writes new URLs with COPY, as a binary stream.

Twice as fast as an INSERT on the server, with a third of the work in this process (decision 0014).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice, repeat
from struct import Struct
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import DatabaseBusy
from siteatlas.storage.copying import copy_fault, copy_time_limit
from siteatlas.storage.models import SitemapUrl
from siteatlas.storage.statements.url_rows import NO_DATE, NO_DIGEST, UrlRows, date_numbers

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
    "entry_digest",
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

_row_start = Struct(">hi16si").pack
_row_head = Struct(">26sqi").pack
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
        async with copy_time_limit(driver, COPY_SECONDS):
            await driver.copy_to_table(
                SitemapUrl.__tablename__, source=stream(rows), columns=COLUMNS, format="binary"
            )
    except asyncpg.UniqueViolationError as error:
        rows.contested = True
        raise DatabaseBusy from error
    except BaseException as error:
        own = copy_fault(error, driver)
        if not isinstance(own, DatabaseBusy):
            # The driver may be in the middle of the copy and cannot run other statements.
            await connection.invalidate()
        if own is None:
            raise
        raise own from error


async def stream(rows: UrlRows) -> AsyncIterator[bytes]:
    """All rows with signature and trailer, encoded in chunks; other tasks run in between."""
    yield SIGNATURE
    async for chunk in fair_loop().time_slices(encoded(rows)):
        yield chunk
    yield TRAILER


def encoded(rows: UrlRows) -> Iterator[bytes]:
    """The rows in chunks of a thousand."""
    starts, endings = _starts(rows.runs), PlainEndings()
    for first in range(0, len(rows), ROWS_PER_CHUNK):
        yield _encoded_chunk(rows, slice(first, first + ROWS_PER_CHUNK), starts, endings)


def _encoded_chunk(
    rows: UrlRows, some: slice, starts: Iterator[bytes], endings: PlainEndings
) -> bytes:
    """Some of the rows. Column by column, because it runs for every new URL."""
    urls = list(map(str.encode, rows.url[some]))
    parts = [b""] * (5 * len(urls))
    heads = islice(starts, len(urls))
    parts[0::5] = map(_row_head, heads, rows.url_hash[some], map(len, urls))
    parts[1::5] = urls
    parts[2::5] = _copy_numbers(rows.dates[some] or date_numbers(rows.lastmod[some]), NO_DATE)
    parts[3::5] = _copy_endings(rows, some, endings)
    parts[4::5] = _copy_numbers(rows.entry_digest[some], NO_DIGEST)
    return b"".join(parts)


def _starts(runs: Iterable[tuple[UUID, int]]) -> Iterator[bytes]:
    """What comes before the hash, for each row: the number of fields and the document."""
    for sitemap_id, count in runs:
        yield from repeat(_row_start(len(COLUMNS), 16, sitemap_id.bytes, 8), count)


def _copy_numbers(numbers: list[int], none: int) -> list[bytes]:
    """A column of dates or digests as fields of a binary COPY; `none` is stored as NULL."""
    if none in numbers:
        return [NULL if number == none else _bigint(8, number) for number in numbers]
    return list(map(_bigint, repeat(8), numbers))


class PlainEndings(dict[tuple[str | None, float | None, int], bytes]):
    """What comes between `lastmod` and digest in a row without extras and text of its date.

    Few combinations of frequency, priority and fingerprint occur, so each is encoded once.
    """

    def __missing__(self, kind: tuple[str | None, float | None, int]) -> bytes:
        changefreq, priority, fingerprint = kind
        ending = _copy_ending(changefreq, priority, None, fingerprint, None)
        if len(self) < CACHED_KINDS:
            self[kind] = ending
        return ending


def _copy_endings(rows: UrlRows, some: slice, plain: PlainEndings) -> list[bytes]:
    """What comes between `lastmod` and digest, for each row."""
    frequencies, priorities = rows.changefreq[some], rows.priority[some]
    extras, prints, texts = rows.extras[some], rows.fingerprint[some], rows.lastmod_text[some]
    if extras.count(None) < len(extras):
        return list(map(_copy_ending, frequencies, priorities, extras, prints, texts))
    kinds: tuple[list[Any], ...] = (frequencies, priorities, prints)
    if all(column.count(column[0]) == len(prints) for column in kinds):
        # As in most documents.
        endings = [plain[frequencies[0], priorities[0], prints[0]]] * len(prints)
    else:
        endings = [plain[kind] for kind in zip(*kinds, strict=True)]
    if texts.count(None) < len(texts):
        for index in [index for index, text in enumerate(texts) if text is not None]:
            values = frequencies[index], priorities[index], None, prints[index], texts[index]
            endings[index] = _copy_ending(*values)
    return endings


def _copy_ending(
    changefreq: str | None,
    priority: float | None,
    extras: str | None,
    fingerprint: int,
    lastmod_text: str | None,
) -> bytes:
    """The columns between `lastmod` and digest as fields of a binary COPY."""
    return b"".join(
        (
            _copy_text(changefreq),
            NULL if priority is None else _real(4, priority),
            NULL if extras is None else _copy_field(JSONB_VERSION + extras.encode()),
            _bigint(8, fingerprint),
            _copy_text(lastmod_text),
        )
    )


def _copy_text(value: str | None) -> bytes:
    """A text column as a field of a binary COPY."""
    return NULL if value is None else _copy_field(value.encode())


def _copy_field(value: bytes) -> bytes:
    """A field of a binary COPY: its length and its bytes."""
    return _length(len(value)) + value
