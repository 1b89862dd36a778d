"""New rows of `sitemap_urls`, held column by column and sent by COPY in the binary format.

`UrlRows` collects the rows of many documents; `copy_urls` sends those that are not stored yet.
`terminate_stalled_copies` ends statements whose client disappeared in the middle of them, which no
timeout of the server does: a backend that waits for the client inside COPY ignores every timeout of
PostgreSQL. So does one that has parsed a statement and waits for its parameters: the driver sends
the two in turn, and only a backend at the end of a statement counts as idle. Their uncommitted rows
and locks block others: the next writer of the same documents, and rescues, which skip locked jobs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, repeat
from struct import Struct
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import Select, column, func, literal, or_, select, table
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.aio import fair_loop
from siteatlas.errors import DatabaseBusy
from siteatlas.storage.copying import copy_fault, copy_time_limit
from siteatlas.storage.engine import APPLICATION_NAME, BACKUP_NAME
from siteatlas.storage.models import SitemapUrl

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
HELD_COLUMNS = (*COLUMNS[1:], "dates")
LINE_BREAK = "\n"
# About the memory of a row without its extras.
ROW_SIZE = 400
POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
# The date of an entry without one: before all others.
NO_DATE = -(1 << 63)
COPY_SECONDS = 30
# A living worker gives up its COPY before that, and sends parameters at once.
STALLED_SECONDS = COPY_SECONDS + 10
NULL = b"\xff\xff\xff\xff"


@dataclass(slots=True)
class UrlRows:
    """Rows of `sitemap_urls`, column by column. `extras` are JSON texts, `dates` the lastmods.

    `runs` says how many rows in a row belong to which document; entries that are still compared
    have none. `size` is about the memory, in bytes, that all of it takes. `contested` rows may be
    stored already. `places` are those of the rows that `put_latest` has added.
    """

    runs: list[tuple[UUID, int]] = field(default_factory=list)
    url_hash: list[int] = field(default_factory=list)
    url: list[str] = field(default_factory=list)
    lastmod: list[datetime | None] = field(default_factory=list)
    changefreq: list[str | None] = field(default_factory=list)
    priority: list[float | None] = field(default_factory=list)
    extras: list[str | None] = field(default_factory=list)
    fingerprint: list[int] = field(default_factory=list)
    lastmod_text: list[str | None] = field(default_factory=list)
    dates: list[int] = field(default_factory=list)
    size: int = 0
    contested: bool = False
    places: dict[tuple[UUID, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.url_hash)

    def at(self, indexes: Sequence[int]) -> UrlRows:
        """The rows at these indexes."""
        columns: list[Any] = [[values[index] for index in indexes] for values in self._columns()]
        return UrlRows([], *columns)

    def append(self, sitemap_id: UUID, rows: UrlRows) -> None:
        """Add rows of one document."""
        count = len(rows)
        if not count:
            return
        self.runs.append((sitemap_id, count))
        self.size += count * ROW_SIZE
        if rows.extras.count(None) < count:
            self.size += sum(len(extra) for extra in rows.extras if extra)
        for values, more in zip(self._columns(), rows._columns(), strict=True):
            values.extend(more)

    def put_latest(self, sitemap_id: UUID, rows: UrlRows, index: int) -> None:
        """Add the row at an index. Of several listings of a URL, the greatest is kept.

        That is the one with the latest date; of those with equal dates, the fingerprints decide.
        """
        place = self.places.setdefault((sitemap_id, rows.url_hash[index]), len(self))
        if place == len(self):
            self.append(sitemap_id, rows.at([index]))
            return
        kept = self.dates[place], self.fingerprint[place]
        if kept < (rows.dates[index], rows.fingerprint[index]):
            for values, more in zip(self._columns(), rows._columns(), strict=True):
                values[place] = more[index]

    def discard(self, sitemap_id: UUID, url_hash: int) -> None:
        """Remove a row if it is there; all of them must have been added by `put_latest`."""
        place = self.places.pop((sitemap_id, url_hash), None)
        if place is None:
            return
        for values in (self.runs, *self._columns()):
            values[place] = values[-1]
            del values[-1]
        if place < len(self):
            self.places[self.runs[place][0], self.url_hash[place]] = place

    def _columns(self) -> list[list[Any]]:
        return [getattr(self, name) for name in HELD_COLUMNS]

    def sitemap_ids(self) -> list[UUID]:
        """The documents of the rows, each once."""
        return list(dict.fromkeys(sitemap_id for sitemap_id, _ in self.runs))

    def parameters(self) -> dict[str, Any]:
        """The columns as parameters of a statement."""
        sitemap_ids = self.sitemap_ids()
        place = {sitemap_id: str(n) for n, sitemap_id in enumerate(sitemap_ids, start=1)}
        places = [place[sitemap_id] for sitemap_id, count in self.runs for _ in range(count)]
        return {
            "p_sitemap_ids": sitemap_ids,
            "p_place": LINE_BREAK.join(places),
            "p_url_hash": self.url_hash,
            "p_url": LINE_BREAK.join(self.url),
            "p_lastmod": self.lastmod,
            "p_changefreq": _join_column(self.changefreq),
            "p_priority": _join_column(None if p is None else str(p) for p in self.priority),
            "p_extras": _join_column(self.extras),
            "p_fingerprint": self.fingerprint,
            "p_lastmod_text": self.lastmod_text,
        }


def _join_column(values: Iterable[str | None]) -> str:
    """A text column of `sitemap_urls` as one statement parameter; an empty line means NULL."""
    return LINE_BREAK.join([value or "" for value in values])


def date_numbers(lastmods: Iterable[datetime | None]) -> list[int]:
    """Dates as PostgreSQL stores them: microseconds since 2000."""
    return [
        NO_DATE if moment is None else (moment - POSTGRES_EPOCH) // MICROSECOND
        for moment in lastmods
    ]


_any_statement = select(literal(1))


async def copy_urls(session: AsyncSession, rows: UrlRows) -> None:
    """Send rows that are not stored yet. DatabaseBusy when one of them turns out to be there."""
    connection = await session.connection()
    driver: Any = (await connection.get_raw_connection()).driver_connection
    if not driver.is_in_transaction():
        # SQLAlchemy begins its transaction with the first statement that goes through it.
        await session.execute(_any_statement)
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
    yield b"PGCOPY\n\xff\r\n\0" + bytes(8)
    async for chunk in fair_loop().time_slices(encoded(rows)):
        yield chunk
    yield b"\xff\xff"


def encoded(rows: UrlRows) -> Iterator[bytes]:
    """The rows in chunks of a thousand."""
    starts = _starts(rows.runs)
    size = 1_000
    for first in range(0, len(rows), size):
        yield _encoded_chunk(rows, slice(first, first + size), starts)


_row_start = Struct(">hi16si").pack
_row_head = Struct(">26sqi").pack
_length = Struct(">i").pack
_bigint = Struct(">iq").pack
_real = Struct(">if").pack


def _encoded_chunk(rows: UrlRows, some: slice, starts: Iterator[bytes]) -> bytes:
    """Some of the rows. Column by column, because it runs for every new URL."""
    urls = list(map(str.encode, rows.url[some]))
    parts = [b""] * (4 * len(urls))
    heads = islice(starts, len(urls))
    parts[0::4] = map(_row_head, heads, rows.url_hash[some], map(len, urls))
    parts[1::4] = urls
    parts[2::4] = _copy_dates(rows.dates[some] or date_numbers(rows.lastmod[some]))
    parts[3::4] = _copy_endings(rows, some)
    return b"".join(parts)


def _starts(runs: Iterable[tuple[UUID, int]]) -> Iterator[bytes]:
    for sitemap_id, count in runs:
        yield from repeat(_row_start(len(COLUMNS), 16, sitemap_id.bytes, 8), count)


def _copy_dates(dates: list[int]) -> list[bytes]:
    if NO_DATE in dates:
        return [NULL if date == NO_DATE else _bigint(8, date) for date in dates]
    return list(map(_bigint, repeat(8), dates))


def _copy_endings(rows: UrlRows, some: slice) -> list[bytes]:
    frequencies, priorities = rows.changefreq[some], rows.priority[some]
    extras, prints, texts = rows.extras[some], rows.fingerprint[some], rows.lastmod_text[some]
    if extras.count(None) < len(extras):
        return list(map(_copy_ending, frequencies, priorities, extras, prints, texts))
    kinds: tuple[list[Any], ...] = (frequencies, priorities, prints)
    if all(column.count(column[0]) == len(prints) for column in kinds):
        # As in most documents.
        endings = [_plain_ending(frequencies[0], priorities[0], prints[0])] * len(prints)
    else:
        endings = list(map(_plain_ending, *kinds))
    if texts.count(None) < len(texts):
        for index in [index for index, text in enumerate(texts) if text is not None]:
            values = frequencies[index], priorities[index], None, prints[index], texts[index]
            endings[index] = _copy_ending(*values)
    return endings


@lru_cache(maxsize=4_096)
def _plain_ending(changefreq: str | None, priority: float | None, fingerprint: int) -> bytes:
    """The ending of a row without extras and text of its date: few combinations occur."""
    return _copy_ending(changefreq, priority, None, fingerprint, None)


def _copy_ending(
    changefreq: str | None,
    priority: float | None,
    extras: str | None,
    fingerprint: int,
    lastmod_text: str | None,
) -> bytes:
    return b"".join(
        (
            _copy_text(changefreq),
            NULL if priority is None else _real(4, priority),
            NULL if extras is None else _copy_field(b"\x01" + extras.encode()),
            _bigint(8, fingerprint),
            _copy_text(lastmod_text),
        )
    )


def _copy_text(value: str | None) -> bytes:
    return NULL if value is None else _copy_field(value.encode())


def _copy_field(value: bytes) -> bytes:
    return _length(len(value)) + value


async def terminate_stalled_copies(session: AsyncSession) -> int:
    """End the backends of clients that froze or vanished in a statement; how many there were."""
    return len((await session.execute(_end_stalled)).all())


def _end_stalled_statement() -> Select[tuple[bool]]:
    """Only of our own role: others can be neither seen nor ended without more rights."""
    about = table(
        "pg_stat_activity",
        column("pid"),
        column("datname"),
        column("usename"),
        column("application_name"),
        column("state"),
        column("wait_event"),
        column("query"),
        column("query_start"),
    ).c
    ours = about.application_name.like(f"{APPLICATION_NAME}%")
    copy = about.query.like(f"COPY%{SitemapUrl.__tablename__}%")
    return select(func.pg_terminate_backend(about.pid)).where(
        about.datname == func.current_database(),
        about.usename == func.session_user(),
        about.state == "active",
        about.wait_event == "ClientRead",
        or_(ours, copy),
        # Programs with which an operator restores or loads the table, for as long as it takes.
        about.application_name.not_in(("psql", "pg_restore", BACKUP_NAME)),
        about.query_start < func.now() - timedelta(seconds=STALLED_SECONDS),
    )


_end_stalled = _end_stalled_statement()
