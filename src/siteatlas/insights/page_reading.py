"""Reads one page of a list, until it is full in rows or in bytes.

What a site lists for a URL may be large, so a limit on rows alone would not be a limit. Rows beyond
a full page are not fetched.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import orjson
from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.pages import Page

MAX_PAGE_BYTES = 4 * 1024 * 1024
FIRST_ROWS = 50
# Between two parts of a long page, the event loop answers other requests.
MAX_ROWS_AT_ONCE = 1_000
# Names of fields, numbers, times and identifiers of one item.
ITEM_BYTES = 200
STREAMED = {"yield_per": FIRST_ROWS}

T = TypeVar("T")


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
        return max(1, min(likely, MAX_ROWS_AT_ONCE))


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
    result = await session.stream(statement, values, execution_options=STREAMED)
    try:
        wanted, rows = 0, None
        while rows is None or len(rows) == wanted:
            wanted = room.rows_to_fetch()
            rows = await result.fetchmany(wanted)
            for row in rows:
                yield row
    finally:
        await result.close()


def view_bytes(view: Any) -> int:
    """About how many bytes a view takes on its page."""
    size = ITEM_BYTES
    for name in view.__slots__:
        value = getattr(view, name)
        if isinstance(value, str):
            size += len(value) if value.isascii() else len(value.encode())
        elif isinstance(value, (dict, list)):
            size += len(orjson.dumps(value, default=str))
    return size
