"""Read statements for the change feed: pages of the events of all sites, or of one.

The order is (number, events of documents and domains by id, changes of URLs by sitemap and hash).
A page is bounded in items, in bytes, in the rows that a filter examines and in the numbers that it
passes, so a scan with many changes continues on the next page, and a page may be empty though more
follows. Callers read in one snapshot, in which the head and the events fit together.
"""

from __future__ import annotations

from contextlib import aclosing

from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.change_views import ChangeView, FeedPage, change_view
from siteatlas.insights.feed_positions import (
    FeedHeadView,
    FeedPosition,
    read_head,
    start_position,
)
from siteatlas.insights.feed_windows import (
    FeedFilter,
    FeedWindow,
    hits_and_last,
    number_at,
    position_of,
)
from siteatlas.insights.page_reading import PageCapacity, stream_rows
from siteatlas.insights.pages import page_size

# The maximum number of rows in a window, and that a page of the feed examines.
MAX_EXAMINED = 10_000
FIRST_STEP_OF_FILTER = 1_000
# A page passes at most as many scans: those without changes cost a look each.
MAX_NUMBERS = 5_000
FIRST_NUMBERS = 20
GROWTH_OF_NUMBERS = 5


async def list_changes(
    session: AsyncSession,
    wanted: FeedFilter = FeedFilter(),
    *,
    after: int | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> FeedPage:
    """One page of the feed, from `after`, `cursor` or the oldest event retained."""
    head = await read_head(session)
    start = start_position(head, after=after, cursor=cursor)
    return await read_changes(session, wanted, head, start, limit)


async def read_changes(
    session: AsyncSession,
    wanted: FeedFilter,
    head: FeedHeadView,
    start: FeedPosition,
    limit: int | None = None,
) -> FeedPage:
    """The page behind a position, up to a head that was read before."""
    page = PageInProgress(wanted, page_size(limit), MAX_EXAMINED)
    end = await page.fill(session, head, start)
    return FeedPage(
        items=page.items,
        from_seq=start.done + 1,
        to_seq=end.done,
        next_cursor=end.cursor(head.feed_id),
        at_head=end.is_between_numbers and end.done == head.seq,
        feed_id=head.feed_id,
        retained_from=head.retained_from,
    )


class PageInProgress:
    """A page of the feed while it is read in growing windows of rows.

    Its bounds apply to all that is read for it, from one position or from several.
    """

    def __init__(self, wanted: FeedFilter, size: int, max_examined: int) -> None:
        self.items: list[ChangeView] = []
        self._wanted = wanted
        self._room = PageCapacity(size)
        self._max_examined = max_examined
        self._step = size + 1 if wanted.kinds is None else FIRST_STEP_OF_FILTER
        self._examined = 0
        self._numbers = FIRST_NUMBERS
        self._passed = 0

    @property
    def is_finished(self) -> bool:
        """Whether the page is full, or has reached its limit of rows or numbers."""
        examined = self._examined >= self._max_examined
        return self._room.is_full or examined or self._passed >= MAX_NUMBERS

    async def fill(
        self, session: AsyncSession, head: FeedHeadView, position: FeedPosition
    ) -> FeedPosition:
        """Read until the page is over or the head is reached."""
        while position.done < head.seq and not self.is_finished:
            upper = await self._upper_number(session, position, head)
            position = await self._read_window(session, position, upper)
        return position

    async def _upper_number(
        self, session: AsyncSession, position: FeedPosition, head: FeedHeadView
    ) -> int:
        """The last number of the next window, which grows while there is little to read."""
        if not position.is_between_numbers or position.done + 1 == head.seq:
            return position.done + 1
        numbers = min(self._numbers, MAX_NUMBERS - self._passed)
        self._passed += numbers
        self._numbers *= GROWTH_OF_NUMBERS
        limit = number_at(self._wanted, position.done, head.seq, numbers)
        return (await session.execute(limit)).scalar() or head.seq

    async def _read_window(
        self, session: AsyncSession, start: FeedPosition, upper: int
    ) -> FeedPosition:
        """Take the matching events of the next rows up to a number; return the new position."""
        step = min(self._step, MAX_EXAMINED, self._max_examined - self._examined)
        window = FeedWindow(self._wanted, start, upper, step)
        if window.is_empty:
            return FeedPosition(upper)
        position, place = start, 0
        async with aclosing(
            stream_rows(session, hits_and_last(window.shape), self._room, window.values())
        ) as rows:
            async for row in rows:
                if self._room.is_full:
                    self._examined += place
                    return position
                position, place = position_of(row), row.place
                if row.hit:
                    self.items.append(change_view(row))
                    self._room.add(self.items[-1])
        self._examined += place
        if place < step:
            return FeedPosition(upper)
        self._step *= 2
        return position
