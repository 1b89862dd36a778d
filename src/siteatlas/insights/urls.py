"""Read statements for URLs, sitemap by sitemap, at the same cost for the first and the last page.

No OFFSET and no COUNT. Filters have no index: a request examines at most 10,000 rows, reports how
many it examined, and returns a cursor to continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    Subquery,
    and_,
    case,
    func,
    literal,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.feed_positions import read_head
from siteatlas.insights.page_reading import PageCapacity, stream_rows
from siteatlas.insights.pages import (
    MAX_BIGINT,
    MIN_BIGINT,
    CursorScope,
    Page,
    page_size,
    parse_bigint,
)
from siteatlas.scanner.reading.lastmod_text import restored_text
from siteatlas.storage.models import Sitemap, SitemapUrl

MAX_EXAMINED = 10_000
FIRST_STEP_OF_SEARCH = 1_000


class ListingState(StrEnum):
    """Which URLs to show: listed URLs, removed URLs, or all."""

    LISTED = "listed"
    REMOVED = "removed"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class UrlView:
    """A stored URL as shown to clients; `sitemap` is the URL of the document that lists it.

    `lastmod_text` is the date as listed, None where that is a full timestamp.
    """

    url: str
    lastmod: datetime | None
    changefreq: str | None
    priority: float | None
    sitemap: str
    sitemap_id: UUID
    first_seen_at: datetime
    removed_at: datetime | None
    extras: dict[str, Any] | None
    lastmod_text: str | None


@dataclass(frozen=True, slots=True)
class UrlPage(Page[UrlView]):
    """A page of URLs. The first one says which number of the change feed it is not older than."""

    as_of_seq: int | None = None


@dataclass(frozen=True, slots=True)
class PagePosition:
    """A row in the order of the list; the next row is behind it."""

    sitemap_id: UUID
    url_hash: int


@dataclass(frozen=True, slots=True)
class UrlFilter:
    """What to show; `contains` ignores case."""

    contains: str | None = None
    state: ListingState = ListingState.LISTED


async def list_domain_urls(
    session: AsyncSession,
    domain_id: UUID,
    *,
    contains: str | None = None,
    state: ListingState = ListingState.LISTED,
    limit: int | None = None,
    cursor: str | None = None,
) -> UrlPage:
    """The URLs of a site in the order of (sitemap, hash)."""
    scope = CursorScope("domain urls", (domain_id, contains, state.value))
    wanted = UrlFilter(contains, state)
    return await _list(session, Sitemap.domain_id == domain_id, scope, wanted, limit, cursor)


async def list_sitemap_urls(
    session: AsyncSession,
    sitemap_id: UUID,
    *,
    contains: str | None = None,
    state: ListingState = ListingState.LISTED,
    limit: int | None = None,
    cursor: str | None = None,
) -> UrlPage:
    """The URLs of one document in the order of their hash."""
    scope = CursorScope("sitemap urls", (sitemap_id, contains, state.value))
    wanted = UrlFilter(contains, state)
    return await _list(session, Sitemap.id == sitemap_id, scope, wanted, limit, cursor)


async def _list(
    session: AsyncSession,
    sitemaps: ColumnElement[bool],
    scope: CursorScope,
    wanted: UrlFilter,
    limit: int | None,
    cursor: str | None,
) -> UrlPage:
    """Look at growing windows of rows until the page is full, the list ends or enough is read."""
    # Before the rows, so that no change after this number is missing from the feed that follows.
    as_of = (await read_head(session)).seq if cursor is None else None
    size = page_size(limit)
    room = PageCapacity(size)
    place = scope.read(cursor, _parse_url_position)
    step = FIRST_STEP_OF_SEARCH if wanted.contains else size + 1
    views: list[UrlView] = []
    examined = 0
    while True:
        step = min(step, MAX_EXAMINED - examined)
        window = _window(sitemaps, place, step)
        statement = _hits_and_last(window, wanted, size - len(views))
        end, is_last = await _take_hits(session, statement, room, views)
        if end is None:
            return UrlPage(views, None, examined, as_of)
        examined += end.place
        place = PagePosition(end.sitemap_id, end.url_hash)
        if is_last and end.place < step:
            return UrlPage(views, None, examined, as_of)
        if room.is_full or examined == MAX_EXAMINED:
            behind = scope.write(place.sitemap_id, place.url_hash)
            return UrlPage(views, behind, examined, as_of)
        step *= 2


async def _take_hits(
    session: AsyncSession, statement: Select[Any], room: PageCapacity, views: list[UrlView]
) -> tuple[Any, bool]:
    """Add hits while the page has room. Return the last row read and whether none follows it."""
    end = None
    async with aclosing(stream_rows(session, statement, room)) as rows:
        async for row in rows:
            if room.is_full:
                return end, False
            end = row
            if row.hit:
                views.append(_url_view(row))
                room.add(views[-1])
    return end, True


def _parse_url_position(parts: Sequence[str]) -> PagePosition:
    """The position in a list of URLs that a pagination cursor names."""
    sitemap_id, url_hash = parts
    return PagePosition(UUID(sitemap_id), parse_bigint(url_hash))


def _hits_and_last(window: Subquery, wanted: UrlFilter, need: int) -> Select[Any]:
    """The hits of a window, and always its last row, after which the next window starts."""
    order = (window.c.sitemap_id, window.c.url_hash)
    marked = select(
        *window.c,
        _is_hit(window, wanted).label("hit"),
        func.row_number().over(order_by=order).label("place"),
        func.lead(window.c.url_hash).over(order_by=order).is_(None).label("is_last"),
    ).subquery("marked")
    return (
        select(*marked.c)
        .where(marked.c.hit | marked.c.is_last)
        .order_by(marked.c.place)
        .limit(need + 1)
    )


def _window(sitemaps: ColumnElement[bool], after: PagePosition | None, rows: int) -> Subquery:
    """The next URLs after a position, at most `rows`, in the order of (sitemap, hash)."""
    start: ColumnElement[int] = literal(MIN_BIGINT)
    if after is not None:
        first = Sitemap.id > after.sitemap_id
        if after.url_hash < MAX_BIGINT:
            first = Sitemap.id >= after.sitemap_id
            start = case((Sitemap.id == after.sitemap_id, after.url_hash + 1), else_=start)
        sitemaps = and_(sitemaps, first)
    listings = (
        select(SitemapUrl)
        .where(SitemapUrl.sitemap_id == Sitemap.id, SitemapUrl.url_hash >= start)
        .order_by(SitemapUrl.url_hash)
        .limit(rows)
        .correlate(Sitemap)
        .lateral("listings")
    )
    return (
        select(
            Sitemap.id.label("sitemap_id"),
            Sitemap.url.label("sitemap"),
            *_url_view_columns(listings),
        )
        .join_from(Sitemap, listings, true())
        .where(sitemaps)
        .order_by(Sitemap.id, listings.c.url_hash)
        .limit(rows)
        .subquery("examined")
    )


def _url_view_columns(listings: FromClause) -> list[ColumnElement[Any]]:
    """The columns that a read statement needs for a `UrlView`."""
    skipped = {"sitemap_id", "fingerprint", "missing_scan_id"}
    return [column for column in listings.c if column.name not in skipped]


def _is_hit(window: Subquery, wanted: UrlFilter) -> ColumnElement[bool]:
    """SQL condition: a row of the window matches the filter for URLs."""
    conditions: list[ColumnElement[bool]] = [true()]
    if wanted.contains:
        found = func.strpos(func.lower(window.c.url), func.lower(wanted.contains))
        conditions.append(found > 0)
    match wanted.state:
        case ListingState.LISTED:
            conditions.append(window.c.removed_at.is_(None))
        case ListingState.REMOVED:
            conditions.append(window.c.removed_at.is_not(None))
        case ListingState.ALL:
            pass
        case _:
            assert_never(wanted.state)
    return and_(*conditions)


def _url_view(row: Any) -> UrlView:
    """The view of one URL from a row of the read statement."""
    return UrlView(
        url=row.url,
        lastmod=row.lastmod,
        changefreq=row.changefreq,
        # Stored in four bytes: 0.8 would come back as 0.800000011920929.
        priority=None if row.priority is None else round(row.priority, 6),
        sitemap=row.sitemap,
        sitemap_id=row.sitemap_id,
        first_seen_at=row.first_seen_at,
        removed_at=row.removed_at,
        extras=row.extras,
        lastmod_text=restored_text(row.lastmod, row.lastmod_text),
    )
