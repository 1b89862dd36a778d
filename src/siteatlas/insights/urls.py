"""Read statements for URLs, sitemap by sitemap, at the same cost for the first and the last page.

No OFFSET and no COUNT. Most filters have no index: a request examines at most 10,000 rows, reports
how many it examined, and returns a cursor to continue. What the filters mean: `url_filters.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
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

from siteatlas.errors import InputError
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
from siteatlas.insights.past_urls import PointInTime, as_of, find_past_number
from siteatlas.insights.tagged_domains import has_tag
from siteatlas.insights.url_filters import ListingState, UrlFilter, is_hit, is_in_sitemap
from siteatlas.scanner.reading.lastmod_text import restored_text
from siteatlas.storage.hashes import url_hash
from siteatlas.storage.models import Domain, Sitemap, SitemapUrl

MAX_EXAMINED = 10_000
FIRST_STEP_OF_SEARCH = 2_000
GROWTH_OF_STEPS = 4


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
    domain: str


@dataclass(frozen=True, slots=True)
class UrlPage(Page[UrlView]):
    """A page of URLs. The first one says which number of the change feed it is not older than.

    `total` is the number of all URLs of the list, on its first page and where a counter has it.
    """

    as_of_seq: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class PagePosition:
    """A row in the order of the list; the next row is behind it."""

    sitemap_id: UUID
    url_hash: int


@dataclass(frozen=True, slots=True)
class FoundUrls:
    """The URLs of one read, and the position behind them; None at the end of the list."""

    views: list[UrlView]
    place: PagePosition | None
    examined: int


@dataclass(frozen=True, slots=True)
class UrlSource:
    """The stored URLs of some documents, and which of them to show.

    `at_seq` is the number of the change feed whose state is shown; None for the present.
    """

    sitemaps: ColumnElement[bool]
    wanted: UrlFilter
    at_seq: int | None = None

    def window(self, after: PagePosition | None, rows: int) -> Subquery:
        """The next URLs after a position, at most `rows`, in the order of (sitemap, hash)."""
        documents = and_(self.sitemaps, is_in_sitemap(self.wanted), Domain.deleted_at.is_(None))
        if self.wanted.url is not None:
            found = _same_url(documents, self.wanted.url, after, rows)
        else:
            found = _next_rows(documents, after, rows)
        return found if self.at_seq is None else as_of(found, self.at_seq)


async def list_domain_urls(
    session: AsyncSession,
    domain_id: UUID,
    wanted: UrlFilter = UrlFilter(),
    *,
    at: PointInTime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> UrlPage:
    """The URLs of a site in the order of (sitemap, hash), now or as they were."""
    if at is not None:
        return await _list_past_urls(session, domain_id, wanted, at, limit, cursor)
    scope = CursorScope("domain urls", (domain_id, *wanted.key))
    total = select(Domain.url_count).where(Domain.id == domain_id)
    if wanted.sitemap is not None:
        of_site = Sitemap.domain_id == domain_id
        total = select(Sitemap.url_count).where(of_site, is_in_sitemap(wanted))
    source = source_of_urls(domain_id, wanted)
    return await _list(session, source, scope, total, limit, cursor)


async def _list_past_urls(
    session: AsyncSession,
    domain_id: UUID,
    wanted: UrlFilter,
    at: PointInTime,
    limit: int | None,
    cursor: str | None,
) -> UrlPage:
    """The URLs of a site as they were.

    A cursor has the number of its first page: a scan that is published meanwhile, and that ended
    before the time, does not change the list.
    """
    at_seq = at if isinstance(at, int) else None
    pages = CursorScope("past urls", (domain_id, at_seq, *wanted.key))
    known, inner = pages.read(cursor, _parse_past_cursor) or (None, None)
    number = await find_past_number(session, domain_id, at if known is None else known)
    scope = CursorScope("urls at a number", (number,))
    source = source_of_urls(domain_id, wanted, at_seq=number)
    page = await _list(session, source, scope, None, limit, inner)
    behind = page.next_cursor and pages.write(number, page.next_cursor)
    return replace(page, next_cursor=behind, as_of_seq=page.as_of_seq and number)


async def list_sitemap_urls(
    session: AsyncSession,
    sitemap_id: UUID,
    wanted: UrlFilter = UrlFilter(),
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> UrlPage:
    """The URLs of one document in the order of their hash."""
    scope = CursorScope("sitemap urls", (sitemap_id, *wanted.key))
    total = select(Sitemap.url_count).where(Sitemap.id == sitemap_id)
    source = UrlSource(Sitemap.id == sitemap_id, wanted)
    return await _list(session, source, scope, total, limit, cursor)


def source_of_urls(
    domain_id: UUID | None,
    wanted: UrlFilter,
    tag: str | None = None,
    *,
    at_seq: int | None = None,
) -> UrlSource:
    """The URLs of a site, also as they were at a number, or of all sites or those with a tag."""
    if at_seq is not None and wanted.state is not ListingState.LISTED:
        raise InputError("At a past time or number, only listed URLs are known.")
    if domain_id is not None:
        return UrlSource(Sitemap.domain_id == domain_id, wanted, at_seq)
    return UrlSource(true() if tag is None else has_tag(tag), wanted)


async def search_urls(
    session: AsyncSession,
    wanted: UrlFilter = UrlFilter(),
    *,
    tag: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> UrlPage:
    """The URLs of all sites, or of those with a tag, in the order of (sitemap, hash)."""
    scope = CursorScope("all urls", (tag, *wanted.key))
    return await _list(session, source_of_urls(None, wanted, tag), scope, None, limit, cursor)


async def _list(
    session: AsyncSession,
    source: UrlSource,
    scope: CursorScope,
    total: Select[int] | None,
    limit: int | None,
    cursor: str | None,
) -> UrlPage:
    """One page of a list of URLs; the first one has the total and the number of the feed."""
    place = scope.read(cursor, _parse_url_position)
    as_of_seq = known = None
    if cursor is None:
        # Before the rows, so that no change after this number is missing from the feed after them.
        as_of_seq = (await read_head(session)).seq
        if total is not None and source.wanted.is_unfiltered:
            known = (await session.execute(total)).scalar()
    found = await read_urls(session, source, place, page_size(limit))
    behind = None
    if found.place is not None:
        behind = scope.write(found.place.sitemap_id, found.place.url_hash)
    return UrlPage(found.views, behind, found.examined, as_of_seq, known)


async def read_urls(
    session: AsyncSession, source: UrlSource, place: PagePosition | None, size: int
) -> FoundUrls:
    """Look at growing windows of rows until the page is full, the list ends or enough is read."""
    room = PageCapacity(size)
    step = size + 1 if source.wanted.shows_most_rows else FIRST_STEP_OF_SEARCH
    views: list[UrlView] = []
    examined = 0
    while True:
        step = min(step, MAX_EXAMINED - examined)
        statement = _hits_and_last(source.window(place, step), source.wanted, size - len(views))
        end, is_last = await _take_hits(session, statement, room, views)
        if end is None:
            return FoundUrls(views, None, examined)
        examined += end.place
        place = PagePosition(end.sitemap_id, end.url_hash)
        if is_last and end.place < step:
            return FoundUrls(views, None, examined)
        if room.is_full or examined == MAX_EXAMINED:
            return FoundUrls(views, place, examined)
        step *= GROWTH_OF_STEPS


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


def _parse_past_cursor(parts: Sequence[str]) -> tuple[int, str]:
    """The number and the cursor of the list at this number that a cursor of past URLs has."""
    number, inner = parts
    return parse_bigint(number), inner


def _hits_and_last(window: Subquery, wanted: UrlFilter, need: int) -> Select[Any]:
    """The hits of a window, and always its last row, after which the next window starts."""
    order = (window.c.sitemap_id, window.c.url_hash)
    marked = select(
        *window.c,
        is_hit(window.c, wanted).label("hit"),
        func.row_number().over(order_by=order).label("place"),
        func.lead(window.c.url_hash).over(order_by=order).is_(None).label("is_last"),
    ).subquery("marked")
    return (
        select(*marked.c)
        .where(marked.c.hit | marked.c.is_last)
        .order_by(marked.c.place)
        .limit(need + 1)
    )


def _next_rows(sitemaps: ColumnElement[bool], after: PagePosition | None, rows: int) -> Subquery:
    """The URLs of documents behind a position, by their primary key."""
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
    found = _url_view_columns(listings.c).join_from(Sitemap, listings, true())
    return _with_domain(found, sitemaps).order_by(listings.c.url_hash).limit(rows).subquery()


def _same_url(
    sitemaps: ColumnElement[bool], url: str, after: PagePosition | None, rows: int
) -> Subquery:
    """The documents behind a position, at most `rows`, each with its row of a URL if it has one."""
    key = literal(url_hash(url))
    listing = (
        select(SitemapUrl)
        .where(SitemapUrl.sitemap_id == Sitemap.id, SitemapUrl.url_hash == key)
        .limit(1)
        .correlate(Sitemap)
        .lateral("listing")
    )
    if after is not None:
        sitemaps = and_(sitemaps, Sitemap.id > after.sitemap_id)
    others = [column for column in listing.c if column.name != "url_hash"]
    found = _url_view_columns([key.label("url_hash"), *others])
    joined = found.join_from(Sitemap, listing, true(), isouter=True)
    return _with_domain(joined, sitemaps).limit(rows).subquery()


def _with_domain(rows: Select[Any], sitemaps: ColumnElement[bool]) -> Select[Any]:
    """The rows of documents that meet a condition, with the name of their site, in order."""
    joined = rows.join(Domain, Domain.id == Sitemap.domain_id)
    return joined.where(sitemaps).order_by(Sitemap.id)


def _url_view_columns(listings: Any) -> Select[Any]:
    """The columns that a read statement needs for a `UrlView`."""
    skipped = {"sitemap_id", "fingerprint", "missing_scan_id", "entry_digest"}
    return select(
        Sitemap.id.label("sitemap_id"),
        Sitemap.url.label("sitemap"),
        Domain.domain.label("domain"),
        *(column for column in listings if column.name not in skipped),
    )


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
        domain=row.domain,
    )
