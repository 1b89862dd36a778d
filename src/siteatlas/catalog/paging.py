"""Pages of lists: cursors, limits, and reading rows into views.

A cursor names the row behind which the next page starts and the list that it belongs to, so that it
is refused for another list or other filters. A page is bounded in items and in bytes.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

import orjson
import xxhash
from pydantic import Field
from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.views import MAX_BIGINT, MIN_BIGINT, View, declared
from siteatlas.errors import CursorInvalid
from siteatlas.text import is_storable

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_CURSOR_CHARS = 2048
MAX_PAGE_BYTES = 4 * 1024 * 1024
FIRST_ROWS = 50

T = TypeVar("T")
K = TypeVar("K")


Items = Annotated[list[T], declared(maxItems=MAX_LIMIT)]
Cursor = Annotated[str, declared(maxLength=MAX_CURSOR_CHARS)]


@dataclass(frozen=True, slots=True)
class Page(View, Generic[T]):
    """One page of a list."""

    items: Items[T]
    next_cursor: Annotated[
        Cursor | None, Field(description="Cursor of the next page; null on the last page.")
    ]


async def read_page(
    session: AsyncSession,
    statement: Select[*tuple[Any, ...]],
    size: int,
    view: Callable[..., T],
    cursor_of: Callable[[Any], str],
) -> Page[T]:
    """The first page of a statement, each row as a view; with a cursor when more rows follow."""
    room, items, last = PageCapacity(size), list[T](), None
    async with aclosing(stream_rows(session, statement.limit(size + 1), room)) as rows:
        async for row in rows:
            if room.is_full:
                return Page(items, cursor_of(last))
            item, last = view(*row), row
            items.append(item)
            room.add(item)
    return Page(items, None)


async def stream_rows(
    session: AsyncSession,
    statement: Select[*tuple[Any, ...]],
    room: PageCapacity,
    values: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Any, None]:
    """The rows of a statement; no more are fetched at a time than the page has room for.

    `values` are those of its bound parameters.
    """
    result = await session.stream(statement, values, execution_options={"yield_per": FIRST_ROWS})
    try:
        wanted, rows = 0, None
        while rows is None or len(rows) == wanted:
            wanted = room.rows_to_fetch()
            rows = await result.fetchmany(wanted)
            for row in rows:
                yield row
    finally:
        await result.close()


class PageCapacity:
    """How much one page of a list can still hold, in items and in bytes."""

    def __init__(self, items: int) -> None:
        self.items = items
        self._taken = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits; the first item always does."""
        return self._taken >= self.items or self._bytes >= MAX_PAGE_BYTES

    def add(self, view: Any) -> None:
        """Count an item."""
        self._taken += 1
        self._bytes += view_bytes(view)

    def rows_to_fetch(self) -> int:
        """As many rows as are likely to fit, and one that says whether more follow."""
        left = self.items - self._taken
        if not self._taken:
            return min(left + 1, FIRST_ROWS)
        average = self._bytes // self._taken + 1
        likely = min(left, (MAX_PAGE_BYTES - self._bytes) // average) + 1
        # Between two parts of a long page, the event loop answers other requests.
        return max(1, min(likely, 1_000))


def view_bytes(view: Any) -> int:
    """About how many bytes a view takes on its page."""
    # Names of fields, numbers, times and identifiers of one item.
    size = 200
    for name in view.__dataclass_fields__:
        value = getattr(view, name)
        if isinstance(value, str):
            size += len(value) if value.isascii() else len(value.encode())
        elif isinstance(value, (dict, list)):
            size += len(orjson.dumps(value, default=str))
    return size


def page_size(limit: int | None) -> int:
    """The requested number of items, at most `MAX_LIMIT`; `DEFAULT_LIMIT` if None."""
    return max(1, min(DEFAULT_LIMIT if limit is None else limit, MAX_LIMIT))


@dataclass(frozen=True, slots=True)
class CursorScope:
    """The list that a cursor belongs to: its name and its filters."""

    name: str
    filters: tuple[object, ...] = ()

    @property
    def mark(self) -> str:
        """A short fingerprint of list and filters."""
        text = "\x1f".join([self.name, *(repr(value) for value in self.filters)])
        return xxhash.xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass"))

    def write(self, *key: object) -> str:
        """The cursor that stands behind the row with this key."""
        raw = orjson.dumps([self.mark, *(str(part) for part in key)])
        return urlsafe_b64encode(raw).rstrip(b"=").decode()

    def read(self, cursor: str | None, parse: Callable[[Sequence[str]], K]) -> K | None:
        """The key inside a cursor of this list; None without a cursor, CursorInvalid for junk."""
        if cursor is None:
            return None
        try:
            mark, *key = _cursor_parts(cursor)
            if mark != self.mark:
                raise CursorInvalid
            return parse(key)
        except (ValueError, IndexError) as error:
            raise CursorInvalid from error


def _cursor_parts(cursor: str) -> list[str]:
    if len(cursor) > MAX_CURSOR_CHARS:
        raise CursorInvalid
    padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
    parts = orjson.loads(urlsafe_b64decode(padded))
    if not isinstance(parts, list):
        raise CursorInvalid
    if not all(isinstance(part, str) and is_storable(part) for part in parts):
        raise CursorInvalid
    return parts


def bigint_key(parts: Sequence[str]) -> int:
    """The key of a list that is ordered by one 64-bit number."""
    (number,) = parts
    return parse_bigint(number)


def uuid_key(parts: Sequence[str]) -> UUID:
    """The key of a list that is ordered by one UUID."""
    (ident,) = parts
    return UUID(ident)


def text_key(parts: Sequence[str]) -> str:
    """The key of a list that is ordered by one text."""
    (text,) = parts
    return text


_INTEGER = re.compile(r"-?[0-9]{1,19}")


def parse_bigint(text: str) -> int:
    """Parse a number in a cursor, or of a job to look up; ValueError if it exceeds 64 bits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError("not a 64-bit number")
    number = int(text)
    if not MIN_BIGINT <= number <= MAX_BIGINT:
        raise ValueError("not a 64-bit number")
    return number
