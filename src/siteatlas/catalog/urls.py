"""Stored URLs in bulk: their hashes, how they are stored, updated, loaded and counted.

New ones are sent by COPY (`url_copy`), the others as parameters of a statement: numbers and dates
as arrays, texts as lines that the server splits, documents once and by their place. What is also
recorded as a change is in `url_changes`. The entries of a document that is read again are loaded
into `StoredEntries`. The bulk writes at the end serve all tables: rows with the same columns share
one statement.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress, islice, repeat
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    DateTime,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    Update,
    Uuid,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, REAL, Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.selectable import Subquery
from xxhash import xxh3_64_intdigest

from siteatlas.catalog.url_copy import COLUMNS, LINE_BREAK, UrlRows, copy_urls
from siteatlas.hash_arrays import SIGN_BIT, TWO_TO_64, hash_ranges, index_of, signed64
from siteatlas.storage.models import Base
from siteatlas.storage.schema import SITEMAP_URLS, SITEMAPS, table_of

# What a document lists for a URL: the columns after the key and the URL.
LISTED_VALUES = COLUMNS[3:]
# The flags of stored entries: two that are loaded, two that are set while the document is read.
SEEN, MISSING, REMOVED, SET_ASIDE = 1, 2, 4, 8
# For `bytes.translate`: 1 for listed entries that were not seen, or for those not missing yet.
UNSEEN = bytes(not flags & (SEEN | REMOVED) for flags in range(256))
NEWLY_MISSING = bytes(not flags & (SEEN | REMOVED | MISSING) for flags in range(256))
WITH_SEEN = bytes(flags | SEEN for flags in range(256))
NO_TEXT = 0
ITEM_BYTES = 8
# The database may store some pages of entries in another order than they were listed in.
NEARBY = 2_000
# How many URLs of a document are searched for among all entries before an index is made: the
# database moves single rows into gaps, and few URLs are new.
MAX_SEARCHES = 16
KEYS_PER_STATEMENT = 10_000
FINGERPRINTS_PER_QUERY = 20_000

# Keys of stored rows of `sitemap_urls`: the hashes of URLs, by document.
Keys = Mapping[UUID, Sequence[int]]
Row = Mapping[str, Any]
Names = tuple[str, ...]


def url_hash(url: str) -> int:
    """The hash of one URL."""
    return signed64(xxh3_64_intdigest(url.encode()))


def url_hashes(urls: Iterable[str]) -> list[int]:
    """The hashes of many URLs; written out, because it runs once per listed URL."""
    digest = xxh3_64_intdigest
    return [h - TWO_TO_64 if (h := digest(url.encode())) >= SIGN_BIT else h for url in urls]


async def insert_urls(session: AsyncSession, rows: UrlRows) -> None:
    """Store new URLs. A URL that already exists is not changed.

    The fast way fails when another transaction stored one of them meanwhile: DatabaseBusy, and
    the repetition takes the careful way, in which the server sorts them by key.
    """
    if rows.contested:
        await session.execute(_insert_urls, rows.parameters())
    elif rows:
        await copy_urls(session, rows)


async def update_urls(session: AsyncSession, rows: UrlRows) -> None:
    """Update the values of changed URLs, and restore those that were missing or removed."""
    if rows:
        await session.execute(_update_urls, rows.parameters())


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


def unnested_rows() -> Subquery:
    """The parameters of `UrlRows` as rows with the types of the table, and their `place`."""
    columns = {
        "place": text_column_parameter("place"),
        "url_hash": array_column_parameter("url_hash", BigInteger()),
        "url": text_column_parameter("url"),
        "lastmod": array_column_parameter("lastmod", DateTime(timezone=True)),
        "changefreq": text_column_parameter("changefreq"),
        "priority": text_column_parameter("priority"),
        "extras": text_column_parameter("extras"),
        "fingerprint": array_column_parameter("fingerprint", BigInteger()),
        "lastmod_text": array_column_parameter("lastmod_text", Text()),
    }
    rows = func.unnest(*columns.values()).table_valued(*columns, name="listed").render_derived()
    place = cast(rows.c.place, Integer)
    return select(
        of_document("sitemap_ids", Uuid(), place).label("sitemap_id"),
        rows.c.url_hash,
        rows.c.url,
        rows.c.lastmod,
        rows.c.changefreq,
        cast(rows.c.priority, REAL).label("priority"),
        cast(rows.c.extras, JSONB).label("extras"),
        rows.c.fingerprint,
        rows.c.lastmod_text,
        place.label("place"),
    ).subquery("rows")


def unnested_keys() -> Subquery:
    """Keys of `sitemap_urls`: the parameters `p_place` and `p_url_hash`, both arrays, as rows."""
    columns = {
        "place": array_column_parameter("place", Integer()),
        "url_hash": array_column_parameter("url_hash", BigInteger()),
    }
    keys = func.unnest(*columns.values()).table_valued(*columns, name="keys").render_derived()
    return select(
        of_document("sitemap_ids", Uuid(), keys.c.place).label("sitemap_id"),
        keys.c.url_hash,
        keys.c.place,
    ).subquery("rows")


def key_parameters(keys: Keys) -> Iterator[dict[str, Any]]:
    """The parameters of `unnested_keys`, for as many statements as it takes."""
    hashes = chain.from_iterable(keys.values())
    places = chain.from_iterable(repeat(n, len(one)) for n, one in enumerate(keys.values(), 1))
    while some := list(islice(hashes, KEYS_PER_STATEMENT)):
        its_places = list(islice(places, len(some)))
        yield {"p_sitemap_ids": list(keys), "p_place": its_places, "p_url_hash": some}


def of_document(name: str, type_: Any, place: ColumnElement[Any]) -> ColumnElement[Any]:
    """The element of an array parameter at the place of the document of a row."""
    values: Any = Grouping(bindparam(f"p_{name}", type_=ARRAY(type_)))
    element: ColumnElement[Any] = values[place]
    return element


def text_column_parameter(name: str) -> ColumnElement[Any]:
    """A column of URL rows as a statement parameter: lines, which the server splits."""
    return func.string_to_array(
        bindparam(f"p_{name}", type_=Text()), literal(LINE_BREAK), literal("")
    )


def array_column_parameter(name: str, type_: Any) -> ColumnElement[Any]:
    """A column of URL rows as a statement parameter: an array."""
    return bindparam(f"p_{name}", type_=ARRAY(type_))


_insert_urls = _insert_urls_statement()
_update_urls = _update_urls_statement()


class StoredEntries:
    """The stored entries of one document. `in_order`: loaded in the order of their hashes.

    Entries have positions, in the order in which they were loaded. That is the order in which they
    were first listed, unless memory is short, so usually each listed URL is at the position after
    the last one. Rows that have changed since follow one another somewhere else. If many URLs are
    in neither place, an index is made: a dict, or arrays that take less memory.
    """

    def __init__(self, *, in_order: bool = False) -> None:
        self._in_order = in_order
        self._index: dict[int, int] | None = None
        # The hashes in their order, and the positions of these.
        self._sorted: tuple[array[int], array[int]] | None = None
        self._next = 0
        self._next_moved = 0
        self._searches = 0
        self.hashes = array("q")
        self.fingerprints = array("q")
        self.dates = array("q")
        self.texts: array[int] | None = None
        self.flags = bytearray()

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def size(self) -> int:
        """The approximate memory of the entries, in bytes."""
        index = 150 if self._index is not None else 2 * ITEM_BYTES if self._sorted else 0
        texts = ITEM_BYTES if self.texts is not None else 0
        # Hash, fingerprint, date and flags; arrays grow by a sixteenth.
        values = 3 * ITEM_BYTES + 2
        return len(self) * (index + values + texts)

    def extend(
        self,
        hashes: array[int],
        fingerprints: array[int],
        dates: array[int],
        texts: Sequence[str | None] | None,
        flags: bytes,
    ) -> None:
        """Add entries; if `in_order`, their hashes are greater than all previous ones.

        `dates` are those of `date_numbers`; `texts` is None if no date has one.
        """
        first = len(self)
        self.hashes.extend(hashes)
        self.fingerprints.extend(fingerprints)
        self.dates.extend(dates)
        self.flags.extend(flags)
        numbers = None if texts is None else text_numbers(texts)
        if numbers is not None and self.texts is None:
            self.texts = array("q", bytes(ITEM_BYTES * first))
        if self.texts is not None:
            self.texts.extend(numbers or bytes(len(hashes)))

    def positions(
        self, hashes: Sequence[int], *, short_of_memory: bool = False
    ) -> range | list[int | None]:
        """The positions of URLs; None for those that are not stored.

        A range if they follow each other as they were loaded.
        """
        first, end = self._next, self._next + len(hashes)
        if self.hashes[first:end] == array("q", hashes):
            self._next = end
            return range(first, end)
        return self._look_up(hashes, short_of_memory=short_of_memory)

    def _look_up(self, hashes: Sequence[int], *, short_of_memory: bool) -> list[int | None]:
        stored, end = self.hashes, len(self)
        found: list[int | None] = []
        for key in hashes:
            position: int | None = self._next
            if self._next < end and stored[self._next] == key:
                self._next += 1
            elif self._next_moved < end and stored[self._next_moved] == key:
                position = self._next_moved
                self._next_moved += 1
            else:
                position = self._find(key, short_of_memory=short_of_memory)
                if position is not None:
                    self._next_moved = position + 1
            found.append(position)
        return found

    def _find(self, key: int, *, short_of_memory: bool) -> int | None:
        if self._in_order:
            return index_of(self.hashes, key)
        if self._index is None and self._sorted is None:
            first, end = max(0, self._next - NEARBY), self._next + NEARBY
            if self._searches < MAX_SEARCHES:
                first, end = 0, len(self)
                self._searches += 1
            try:
                return self.hashes.index(key, first, end)
            except ValueError:
                if self._searches < MAX_SEARCHES:
                    return None
                self._make_index(short_of_memory=short_of_memory)
        if self._index is not None:
            return self._index.get(key)
        assert self._sorted is not None
        found, positions = index_of(self._sorted[0], key), self._sorted[1]
        return None if found is None else positions[found]

    def _make_index(self, *, short_of_memory: bool) -> None:
        if short_of_memory:
            order = sorted(range(len(self)), key=self.hashes.__getitem__)
            hashes = array("q", map(self.hashes.__getitem__, order))
            self._sorted = hashes, array("q", order)
        else:
            self._index = dict(zip(self.hashes, range(len(self)), strict=True))

    def accept(self, position: int, fingerprint: int, date: int, text: int) -> None:
        """Replace the values of an entry by those that will be stored."""
        self.fingerprints[position] = fingerprint
        self.dates[position] = date
        if self.texts is not None:
            self.texts[position] = text

    def mark_seen(self, positions: range | list[int]) -> None:
        if isinstance(positions, range):
            run = slice(positions.start, positions.stop)
            self.flags[run] = self.flags[run].translate(WITH_SEEN)
            return
        for position in positions:
            self.flags[position] |= SEEN

    def count_unseen(self) -> int:
        """How many listed entries were not seen."""
        return self.flags.translate(UNSEEN).count(1)

    def count_newly_missing(self) -> int:
        """How many of them were not missing before."""
        return self.flags.translate(NEWLY_MISSING).count(1)

    def unseen(self) -> array[int]:
        """The hashes of listed entries that were not seen."""
        return self._selected(UNSEEN)

    def newly_missing(self) -> array[int]:
        """The hashes of listed entries that were not seen and were not missing before."""
        return self._selected(NEWLY_MISSING)

    def _selected(self, table: bytes) -> array[int]:
        return array("q", compress(self.hashes, self.flags.translate(table)))


def text_numbers(texts: Sequence[str | None]) -> list[int] | None:
    """Hashes of the stored texts of dates; None if there are none."""
    if texts.count(None) == len(texts):
        return None
    return list(map(text_number, texts))


def text_number(text: str | None) -> int:
    """The hash of the stored text of a date."""
    return NO_TEXT if text is None else signed64(xxh3_64_intdigest(text.encode()))


async def load_entries(session: AsyncSession, sitemap_id: UUID, stored: StoredEntries) -> None:
    """Add the entries of a document, about in the order in which they were listed.

    Rows are stored in that order and moved only by changes.
    """
    rows = _stored_entries(sitemap_id).order_by(literal_column("sitemap_urls.ctid"))
    await _load_columns(session, rows, stored)


async def load_more_entries(session: AsyncSession, sitemap_id: UUID, stored: StoredEntries) -> bool:
    """Add the next page of entries in the order of their hashes; False if there are no more."""
    before = len(stored)
    rows = _stored_entries(sitemap_id).order_by(SITEMAP_URLS.c.url_hash)
    if before:
        rows = rows.where(SITEMAP_URLS.c.url_hash > stored.hashes[-1])
    await _load_columns(session, rows.limit(FINGERPRINTS_PER_QUERY), stored)
    return len(stored) > before


def _stored_entries(sitemap_id: UUID) -> Select[Any]:
    urls = SITEMAP_URLS.c
    flags = case(
        (urls.removed_at.is_not(None), bytes([REMOVED])),
        (urls.missing_scan_id.is_not(None), bytes([MISSING])),
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
    ).where(urls.sitemap_id == sitemap_id)


async def _load_columns(session: AsyncSession, rows: Select[Any], stored: StoredEntries) -> None:
    """Each column as one value: neither the driver nor Python makes an object of each number."""
    entries = rows.subquery("entries").c
    columns = [
        func.string_agg(entries[name], cast(b"", LargeBinary()), type_=LargeBinary())
        for name in ("hash", "fingerprint", "date", "flags")
    ]
    texts = case((func.count(entries.text) > 0, func.array_agg(entries.text, type_=ARRAY(Text()))))
    *found, texts_found = (await session.execute(select(*columns, texts))).one()
    hashes, fingerprints, dates, flags = (column or b"" for column in found)
    stored.extend(_numbers(hashes), _numbers(fingerprints), _numbers(dates), texts_found, flags)


def _numbers(sent: bytes) -> array[int]:
    """64-bit numbers that the server sent in network byte order."""
    numbers = array("q", sent)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


_count_part = (
    select(func.count(SITEMAP_URLS.c.url_hash.distinct()))
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_URLS.c.sitemap_id)
    .where(
        SITEMAPS.c.domain_id == bindparam("of_domain", type_=Uuid()),
        SITEMAP_URLS.c.url_hash.between(
            bindparam("first", type_=BigInteger()), bindparam("last", type_=BigInteger())
        ),
        SITEMAP_URLS.c.removed_at.is_(None),
    )
)


async def count_distinct_urls(session: AsyncSession, domain_id: UUID, url_count: int) -> int:
    """How many different URLs a site lists; `url_count` is about how many listings it has."""
    total = 0
    for first, last in hash_ranges(url_count // 2_000_000 + 1):
        values = {"of_domain": domain_id, "first": first, "last": last}
        total += int(await session.scalar(_count_part, values) or 0)
    return total


async def insert_rows(session: AsyncSession, model: type[Base], rows: Sequence[Row]) -> None:
    """Insert rows; those that already exist are left unchanged."""
    await insert_values(session, _insert_statement(table_of(model)), rows)


async def insert_values(session: AsyncSession, statement: Insert, rows: Sequence[Row]) -> None:
    """Insert rows with a statement that fills more columns than the rows contain."""
    for alike in _by_shape(rows).values():
        for some in _row_chunks(alike):
            await session.execute(statement, some)


async def replace_rows(
    session: AsyncSession, model: type[Base], rows: Sequence[Row], *, moment: str
) -> None:
    """Insert rows, or update those with the same key; the column `moment` is set to now."""
    for names, alike in _by_shape(rows).items():
        for some in _row_chunks(alike):
            await session.execute(_upsert_statement(table_of(model), names, moment), some)


async def update_rows(session: AsyncSession, model: type[Base], rows: Sequence[Row]) -> None:
    """Update rows by their `id`; each row may change other columns."""
    for names, alike in _by_shape(rows).items():
        if names == ("id",):
            continue
        for some in _row_chunks(alike):
            values = [{f"new_{name}": value for name, value in row.items()} for row in some]
            await session.execute(_update_statement(table_of(model), names), values)


async def delete_rows(
    session: AsyncSession, model: type[Base], condition: ColumnElement[bool], limit: int
) -> int:
    """Delete up to `limit` of the rows that meet a condition; return how many were deleted."""
    table = table_of(model)
    keys = list(table.primary_key)
    batch = select(*keys).where(condition).limit(limit).cte("batch")
    deleted = await session.execute(
        delete(table).where(*(key == batch.c[key.name] for key in keys)).returning(keys[0])
    )
    return len(deleted.all())


@lru_cache(256)
def _insert_statement(table: Table) -> Insert:
    return insert(table).on_conflict_do_nothing()


@lru_cache(256)
def _upsert_statement(table: Table, names: Names, moment: str) -> Insert:
    statement = insert(table).values({moment: func.now()})
    keys = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in (*names, moment) if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


@lru_cache(256)
def _update_statement(table: Table, names: Names) -> Update:
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names if name != "id"}
    return update(table).where(table.c.id == bindparam("new_id")).values(**values)


def _row_chunks(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    # Values are made ready for the driver in one go, and the event loop waits for that.
    size = 200
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _by_shape(rows: Iterable[Row]) -> dict[Names, list[dict[str, Any]]]:
    groups: dict[Names, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(sorted(row)), []).append(dict(row))
    return groups
