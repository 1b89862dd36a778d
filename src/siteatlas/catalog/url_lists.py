"""Lists of stored URLs: of a site, a document or all sites; filtered, at a past time.

A list is in the order of (sitemap, hash) and is read in growing windows of rows, so that a filter
with few hits ends a page after a bounded number of rows. That of a site can be sorted, anew for
each page and without an index, unless it is too long. The state of the past is the present one
with the changes after a number of the feed undone (`as_of`). The history of one URL is what lists
and changes have of it; both are found through indexes. Changes that the feed no longer retains are
in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from types import SimpleNamespace
from typing import Annotated, Any, assert_never
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Select,
    Subquery,
    and_,
    case,
    cast,
    collate,
    func,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import JSONB, REAL
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import LateralFromClause

from siteatlas.catalog.change_feed import (
    ChangeView,
    FeedHeadView,
    change_view,
    last_number_before,
    read_head,
)
from siteatlas.catalog.domains import has_tag
from siteatlas.catalog.paging import (
    MAX_LIMIT,
    Cursor,
    CursorScope,
    Items,
    Page,
    PageCapacity,
    page_size,
    parse_bigint,
    read_page,
    stream_rows,
)
from siteatlas.catalog.urls import url_hash
from siteatlas.catalog.views import (
    MAX_BIGINT,
    MIN_BIGINT,
    Count,
    Example,
    FreeObject,
    Line,
    Name,
    Shown,
    SmallCount,
    Url,
    View,
    Word,
)
from siteatlas.errors import InputError, PastStateUnavailable, SitemapNotFound, TooManyToSort
from siteatlas.scanner.reading.entries import restored_text
from siteatlas.storage.models import Domain, FeedEventKind, Sitemap, SitemapUrl
from siteatlas.storage.schema import DOMAINS, FEED_EVENTS, SCANS, SITEMAPS, URL_CHANGES

MAX_EXAMINED = 10_000
FIRST_STEP_OF_SEARCH = 2_000
# Listings of a site that are sorted like any other read, and as an expensive one.
MAX_SORTED_AT_ONCE = 20_000
MAX_SORTED_URLS = 100_000
# With a minus sign, the last or the latest comes first.
URL_SORTS = "^-?(url|lastmod)$"
# How much of a URL stands in a cursor, which may be inside another one.
MAX_PLACE_BYTES = 500

# A time of the past, or a number of the feed.
PointInTime = datetime | int


class ListingState(StrEnum):
    """Which URLs to show: listed URLs, removed URLs, or all."""

    LISTED = "listed"
    REMOVED = "removed"
    ALL = "all"


class UrlExtra(StrEnum):
    """What a sitemap may list for a URL beyond its dates."""

    IMAGES = "images"
    NEWS = "news"
    VIDEO = "video"
    ALTERNATES = "alternates"


@dataclass(frozen=True, slots=True)
class UrlFilter:
    """What to show. A time range includes its start and excludes its end.

    `contains` ignores case, `prefix` and `url` do not. `sitemap` is the id or the URL of a
    document. A URL is shown if it has everything that `has` names.
    """

    contains: str | None = None
    state: ListingState = ListingState.LISTED
    prefix: str | None = None
    url: str | None = None
    sitemap: str | None = None
    lastmod_from: datetime | None = None
    lastmod_to: datetime | None = None
    first_seen_from: datetime | None = None
    first_seen_to: datetime | None = None
    has: frozenset[UrlExtra] = frozenset()

    @property
    def key(self) -> tuple[object, ...]:
        """The values by which a cursor recognizes its list."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(sorted(v) if isinstance(v, frozenset) else v for v in values)

    @property
    def is_unfiltered(self) -> bool:
        """Whether it shows all listed URLs of its sitemaps, whose number is known."""
        return UrlFilter(sitemap=self.sitemap) == self

    @property
    def shows_most_rows(self) -> bool:
        """Whether it is likely to show the rows that it examines."""
        return UrlFilter(sitemap=self.sitemap, state=self.state) == self


@dataclass(frozen=True, slots=True)
class UrlView(View):
    """One URL as listed by a document."""

    url: Annotated[Url, Example("https://example.com/about")]
    lastmod: Annotated[datetime | None, Example("2025-11-15T00:00:00Z")]
    changefreq: Annotated[Word | None, Example("weekly")]
    priority: Annotated[float | None, Example(0.5)]
    sitemap: Annotated[Url, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID, Example(Shown.sitemap_id)]
    first_seen_at: Annotated[datetime, Example(Shown.later)]
    removed_at: Annotated[
        datetime | None,
        Field(
            description="When it was proved that the sitemap no longer lists the URL; null if "
            "listed."
        ),
    ]
    extras: Annotated[
        FreeObject | None, Example({"images": [{"loc": "https://example.com/about.png"}]})
    ]
    lastmod_text: Annotated[
        Line | None,
        Example("2025-11-15"),
        Field(description="`lastmod` as listed, unless that is a full timestamp."),
    ]
    domain: Annotated[Name, Example("example.com")]


@dataclass(frozen=True, slots=True)
class UrlPage(Page[UrlView]):
    """One page of URLs; with a filter it may be empty and still have a `next_cursor`."""

    items: Items[UrlView]
    examined: Annotated[
        SmallCount | None,
        Field(
            description="Number of rows examined for this page, at most 10,000; null if sorted. "
            "With a filter, a page may be empty; the list ends where `next_cursor` is null."
        ),
    ]
    as_of_seq: Annotated[
        Count | None,
        Field(
            description="Only on the first page: continue with the change feed after this number "
            "when all pages have been read."
        ),
    ]
    total: Annotated[
        Count | None,
        Field(
            description="Only on the first page, and only without a filter other than `sitemap`: "
            "the number of URLs in the list as of the last published scan."
        ),
    ]


async def list_domain_urls(
    session: AsyncSession,
    domain_id: UUID,
    wanted: UrlFilter = UrlFilter(),
    *,
    at: PointInTime | None = None,
    sort: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> UrlPage:
    """The URLs of a site, now or as they were; unless sorted, in the order of (sitemap, hash).

    TooManyToSort if the site has more than `MAX_SORTED_URLS` listings.
    """
    if sort is not None and await count_listings(session, domain_id) > MAX_SORTED_URLS:
        raise TooManyToSort
    if at is not None:
        return await _list_past_urls(session, domain_id, wanted, at, limit, cursor, sort=sort)
    scope = CursorScope("domain urls", (domain_id, *wanted.key))
    total = select(Domain.url_count).where(Domain.id == domain_id)
    if wanted.sitemap is not None:
        of_site = Sitemap.domain_id == domain_id
        total = select(Sitemap.url_count).where(of_site, is_in_sitemap(wanted))
    source = replace(source_of_urls(domain_id, wanted), sort=sort)
    return await _list(session, source, scope, total, limit, cursor)


async def count_listings(session: AsyncSession, domain_id: UUID) -> int:
    """How many rows are read to sort the URLs of a site; not counted to the end if too many."""
    of_sitemap = select(SitemapUrl.url_hash).where(SitemapUrl.sitemap_id == Sitemap.id)
    listings = of_sitemap.limit(MAX_SORTED_URLS + 1).lateral("listings")
    rows = select(listings.c.url_hash).join_from(Sitemap, listings, true())
    some = rows.where(Sitemap.domain_id == domain_id).limit(MAX_SORTED_URLS + 1).subquery()
    return (await session.execute(select(func.count()).select_from(some))).scalar_one()


async def _list_past_urls(
    session: AsyncSession,
    domain_id: UUID,
    wanted: UrlFilter,
    at: PointInTime,
    limit: int | None,
    cursor: str | None,
    *,
    sort: str | None,
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
    source = replace(source_of_urls(domain_id, wanted, at_seq=number), sort=sort)
    page = await _list(session, source, scope, None, limit, inner)
    behind = page.next_cursor and pages.write(number, page.next_cursor)
    return replace(page, next_cursor=behind, as_of_seq=page.as_of_seq and number)


def _parse_past_cursor(parts: Sequence[str]) -> tuple[int, str]:
    number, inner = parts
    return parse_bigint(number), inner


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
    as_of_seq = known = None
    if cursor is None:
        # Before the rows, so that no change after this number is missing from the feed after them.
        as_of_seq = (await read_head(session)).seq
        if total is not None and source.wanted.is_unfiltered:
            known = (await session.execute(total)).scalar()
    if source.sort is not None:
        scope = replace(scope, name=f"{scope.name} by {source.sort}")
        page = await _read_sorted(session, source, scope, page_size(limit), cursor)
        return UrlPage(page.items, page.next_cursor, None, as_of_seq, known)
    place = scope.read(cursor, _parse_url_position)
    found = await read_urls(session, source, place, page_size(limit))
    behind = None
    if found.place is not None:
        behind = scope.write(found.place.sitemap_id, found.place.url_hash)
    return UrlPage(found.views, behind, found.examined, as_of_seq, known)


def _parse_url_position(parts: Sequence[str]) -> PagePosition:
    sitemap_id, url_hash = parts
    return PagePosition(UUID(sitemap_id), parse_bigint(url_hash))


async def _read_sorted(
    session: AsyncSession, source: UrlSource, scope: CursorScope, size: int, cursor: str | None
) -> Page[UrlView]:
    """One page in another order; equal dates are in the order of URLs, equal URLs of sitemaps."""
    # Twice as many, because URLs may be added after they were counted.
    rows = source.window(None, 2 * MAX_SORTED_URLS)
    is_by_url, is_reversed = source.sort in {"url", "-url"}, source.sort == "-url"
    date = cast(func.extract("epoch", rows.c.lastmod) * 1_000_000, BigInteger)
    key = func.coalesce(-date if source.sort == "-lastmod" else date, MAX_BIGINT)
    order: list[Any] = [key, collate(rows.c.url, "C"), rows.c.sitemap_id][is_by_url:]
    statement = select(*rows.c, key.label("key")).where(is_hit(rows.c, source.wanted))
    statement = statement.order_by(*(one.desc() if is_reversed else one for one in order))
    after = scope.read(cursor, _parse_sorted_place)
    if after is not None:
        place, last = tuple_(*order), tuple_(*after[is_by_url:])
        statement = statement.where(place < last if is_reversed else place > last)

    def view(*row: Any) -> UrlView:
        return _url_view(SimpleNamespace(**dict(zip(rows.c.keys(), row[:-1], strict=True))))

    def cursor_of(row: Any) -> str:
        start = row.url.encode()[:MAX_PLACE_BYTES].decode(errors="ignore")
        return scope.write(row.key, start, row.sitemap_id, row.url_hash)

    return await read_page(session, statement, size, view, cursor_of)


def _parse_sorted_place(parts: Sequence[str]) -> list[ColumnElement[Any]]:
    """What rows are sorted by, of one row; the start of its URL if it was deleted meanwhile."""
    key, start, *its_key = parts
    row = _parse_url_position(its_key)
    is_row = and_(SitemapUrl.sitemap_id == row.sitemap_id, SitemapUrl.url_hash == row.url_hash)
    url = func.coalesce(select(SitemapUrl.url).where(is_row).scalar_subquery(), start)
    return [literal(parse_bigint(key)), url, literal(row.sitemap_id)]


@dataclass(frozen=True, slots=True)
class PagePosition:
    """A row in the order of the list; the next row is behind it."""

    sitemap_id: UUID
    url_hash: int


@dataclass(frozen=True, slots=True)
class UrlSource:
    """The stored URLs of some documents, and which of them to show.

    `at_seq` is the number of the change feed whose state is shown; None for the present. `sort` is
    the order of a list that is not in the order of its windows.
    """

    sitemaps: ColumnElement[bool]
    wanted: UrlFilter
    at_seq: int | None = None
    sort: str | None = None

    def window(self, after: PagePosition | None, rows: int) -> Subquery:
        """The next URLs after a position, at most `rows`, in the order of (sitemap, hash)."""
        documents = and_(self.sitemaps, is_in_sitemap(self.wanted), Domain.deleted_at.is_(None))
        if self.wanted.url is not None:
            found = _same_url(documents, self.wanted.url, after, rows)
        else:
            found = _next_rows(documents, after, rows)
        return found if self.at_seq is None else as_of(found, self.at_seq)


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


@dataclass(frozen=True, slots=True)
class FoundUrls:
    """The URLs of one read, and the position behind them; None at the end of the list."""

    views: list[UrlView]
    place: PagePosition | None
    examined: int


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
        step *= 4


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
    joined = rows.join(Domain, Domain.id == Sitemap.domain_id)
    return joined.where(sitemaps).order_by(Sitemap.id)


def _url_view_columns(listings: Any) -> Select[Any]:
    skipped = {"sitemap_id", "fingerprint", "missing_scan_id", "entry_digest"}
    return select(
        Sitemap.id.label("sitemap_id"),
        Sitemap.url.label("sitemap"),
        Domain.domain.label("domain"),
        *(column for column in listings if column.name not in skipped),
    )


def _url_view(row: Any) -> UrlView:
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


async def require_sitemap(session: AsyncSession, wanted: UrlFilter, domain_id: UUID | None) -> None:
    """Raise SitemapNotFound if the filter names a document that is not stored for the site."""
    if wanted.sitemap is None:
        return
    of_site = true() if domain_id is None else Sitemap.domain_id == domain_id
    statement = select(Sitemap.id).where(of_site, is_in_sitemap(wanted)).limit(1)
    if (await session.execute(statement)).first() is None:
        raise SitemapNotFound(
            "There is no sitemap with this id or URL. To list them, run: siteatlas sitemaps SITE"
        )


def is_in_sitemap(wanted: UrlFilter) -> ColumnElement[bool]:
    """SQL condition: a document is the one of the filter, if it names one."""
    if wanted.sitemap is None:
        return true()
    try:
        return Sitemap.id == UUID(wanted.sitemap)
    except ValueError:
        return Sitemap.url == wanted.sitemap


def is_hit(row: Any, wanted: UrlFilter) -> ColumnElement[bool]:
    """SQL condition: a row of stored URLs matches the filter."""
    conditions = [
        *_text_conditions(row, wanted),
        *_time_conditions(row.lastmod, wanted.lastmod_from, wanted.lastmod_to),
        *_time_conditions(row.first_seen_at, wanted.first_seen_from, wanted.first_seen_to),
        *(_has_extra(row.extras, extra) for extra in sorted(wanted.has)),
    ]
    match wanted.state:
        case ListingState.LISTED:
            conditions.append(row.removed_at.is_(None))
        case ListingState.REMOVED:
            conditions.append(row.removed_at.is_not(None))
        case ListingState.ALL:
            pass
        case _:
            assert_never(wanted.state)
    return and_(true(), *conditions)


def _text_conditions(row: Any, wanted: UrlFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.contains:
        conditions.append(func.strpos(func.lower(row.url), func.lower(wanted.contains)) > 0)
    if wanted.prefix:
        conditions.append(func.starts_with(row.url, wanted.prefix))
    if wanted.url is not None:
        conditions.append(row.url == wanted.url)
    return conditions


def _time_conditions(
    column: ColumnElement[datetime], start: datetime | None, end: datetime | None
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if start is not None:
        conditions.append(column >= start)
    if end is not None:
        conditions.append(column < end)
    return [func.coalesce(condition, False) for condition in conditions]


def _has_extra(extras: ColumnElement[Any], extra: UrlExtra) -> ColumnElement[bool]:
    key = "videos" if extra is UrlExtra.VIDEO else extra.value
    return func.coalesce(extras.cast(JSONB).has_key(literal(key)), False)


async def find_past_number(session: AsyncSession, domain_id: UUID, point: PointInTime) -> int:
    """The number at which a site has the state of that time; PastStateUnavailable if it is lost."""
    head = await read_head(session)
    earliest = await _earliest_number(session, domain_id, head)
    number = point if isinstance(point, int) else await _number_at(session, point, earliest)
    if number > head.seq:
        raise PastStateUnavailable(head.limit_text, earliest_seq=earliest)
    if number < earliest:
        raise PastStateUnavailable(earliest_seq=earliest)
    return number


async def require_past_number(session: AsyncSession, number: int) -> None:
    """Raise PastStateUnavailable if the changes after a number are no longer retained."""
    head = await read_head(session)
    if number < head.retained_from:
        raise PastStateUnavailable(earliest_seq=head.retained_from)


async def _number_at(session: AsyncSession, moment: datetime, earliest: int) -> int:
    """The last number that was published up to a moment, which is not in the future.

    Scans before the earliest number are not read: if all others are later, so is that number.
    """
    if moment > (await session.execute(select(func.now()))).scalar_one():
        raise InputError("The time is in the future.")
    return await last_number_before(session, moment, after=earliest - 1, inclusive=True)


async def _earliest_number(session: AsyncSession, domain_id: UUID, head: FeedHeadView) -> int:
    """The first number at which the state of a site is known; beyond the head if it never is.

    Before the last silent read of one of its documents it is not; see `baseline` in the glossary.
    """
    told = select(FEED_EVENTS.c.id).where(
        FEED_EVENTS.c.scan_id == SCANS.c.id, FEED_EVENTS.c.kind == FeedEventKind.BASELINE
    )
    last_baseline = (
        select(func.max(SCANS.c.published_seq))
        .where(
            SCANS.c.domain_id == domain_id,
            SCANS.c.published_seq > head.retained_from,
            told.exists(),
        )
        .scalar_subquery()
    )
    site = select(DOMAINS.c.baseline_scan_id, last_baseline.label("number"))
    found = (await session.execute(site.where(DOMAINS.c.id == domain_id))).one()
    if found.baseline_scan_id is None:
        return head.seq + 1
    return max(head.retained_from, found.number or 0)


def as_of(window: Subquery, number: int) -> Subquery:
    """Rows of stored URLs as they were at a number; what was not listed then has `removed_at`."""
    own = _first_change(window, number)
    left = _first_departure(window, number, own)
    has_left = _is_earlier(left, own)
    is_past = or_(own.c.place.is_not(None), has_left)
    state = case((has_left, left.c.state), else_=own.c.state)
    was_listed = case((is_past, state.is_not(None)), else_=window.c.removed_at.is_(None))
    then: dict[str, ColumnElement[Any]] = {
        "lastmod": cast(_value(state, "lastmod"), DateTime(timezone=True)),
        "lastmod_text": _value(state, "lastmod_text"),
        "changefreq": _value(state, "changefreq"),
        "priority": cast(_value(state, "priority"), REAL),
        "extras": func.jsonb_extract_path(state, literal("extras")),
    }
    columns = [
        case((is_past, then[column.name]), else_=column).label(column.name)
        for column in window.c
        if column.name in then
    ]
    removed = case((was_listed, null()), else_=func.coalesce(window.c.removed_at, func.now()))
    others = [c for c in window.c if c.name not in then and c.name != "removed_at"]
    return (
        select(*others, *columns, removed.label("removed_at"))
        .select_from(window)
        .join(own, true(), isouter=True)
        .join(left, true(), isouter=True)
        .subquery("then")
    )


def _is_earlier(one: LateralFromClause, other: LateralFromClause) -> ColumnElement[bool]:
    names = ("place", "scan_id", "not_after")
    order, of_other = [tuple_(*(side.c[name] for name in names)) for side in (one, other)]
    return and_(one.c.place.is_not(None), or_(other.c.place.is_(None), order < of_other))


def _value(state: ColumnElement[Any], name: str) -> ColumnElement[Any]:
    return func.jsonb_extract_path_text(state, literal(name))


def _changes_after(number: int) -> Select[Any]:
    """The first change after a number, and its place in the order of changes.

    Changes that are not published share one place: there the order is that of their scans. A scan
    that took over the changes of one that was not published has them in the order of their reads.
    """
    place = func.coalesce(SCANS.c.published_seq, MAX_BIGINT)
    return (
        select(place.label("place"), SCANS.c.id.label("scan_id"), URL_CHANGES.c.not_after)
        .select_from(URL_CHANGES)
        .join(SCANS, SCANS.c.id == URL_CHANGES.c.scan_id)
        .where(place > number)
        .order_by(place, SCANS.c.id)
        .limit(1)
    )


def _first_change(window: Subquery, number: int) -> LateralFromClause:
    """The first change of an entry in its document; one that moved here was not listed here."""
    changes = URL_CHANGES.c
    nothing = cast(null(), JSONB())
    state = case((changes.previous_sitemap_id.is_(None), changes.before), else_=nothing)
    return (
        _changes_after(number)
        .add_columns(state.label("state"))
        .where(changes.sitemap_id == window.c.sitemap_id, changes.url_hash == window.c.url_hash)
        .correlate(window)
        .lateral("own")
    )


def _first_departure(window: Subquery, number: int, own: LateralFromClause) -> LateralFromClause:
    """The first change by which an entry moved to another document.

    Only looked for if the entry seems not to have been listed.
    """
    seems_absent = case(
        (own.c.place.is_(None), window.c.removed_at.is_not(None)), else_=own.c.state.is_(None)
    )
    changes = URL_CHANGES.c
    return (
        _changes_after(number)
        .add_columns(changes.before.label("state"))
        .where(
            seems_absent,
            changes.previous_sitemap_id == window.c.sitemap_id,
            changes.url_hash == window.c.url_hash,
        )
        .correlate(window, own)
        .lateral("departure")
    )


@dataclass(frozen=True, slots=True)
class UrlHistoryView(Page[ChangeView]):
    """The changes of one URL, newest first."""

    items: Items[ChangeView]
    entries: Annotated[
        Items[UrlView],
        Field(
            description="Only on the first page: the URL in each sitemap that lists or listed it."
        ),
    ]
    entries_cursor: Annotated[
        Cursor | None,
        Field(
            description="Not null if further sitemaps may list the URL, even if `entries` is "
            "empty: continue with `GET /api/v3/domains/{domain}/urls?url=…&state=all&cursor=…`."
        ),
    ]


async def list_url_history(
    session: AsyncSession,
    domain_id: UUID,
    url: str,
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> UrlHistoryView:
    """What is stored about a URL of a site, exactly as listed."""
    scope = CursorScope("url history", (domain_id, url))
    before = scope.read(cursor, _parse_history_position)
    statement = _select_changes(domain_id, url)
    if before is not None:
        position = tuple_(SCANS.c.published_seq, URL_CHANGES.c.sitemap_id)
        statement = statement.where(position < tuple_(*map(literal, before)))
    names = [str(column.key) for column in statement.selected_columns]
    page = await read_page(
        session,
        statement,
        page_size(limit),
        lambda *row: change_view(SimpleNamespace(**dict(zip(names, row, strict=True)))),
        lambda row: scope.write(row.number, row.sitemap_id),
    )
    if cursor is not None:
        return UrlHistoryView(page.items, page.next_cursor, [], None)
    wanted = UrlFilter(url=url, state=ListingState.ALL)
    found = await list_domain_urls(session, domain_id, wanted, limit=MAX_LIMIT)
    return UrlHistoryView(page.items, page.next_cursor, found.items, found.next_cursor)


def _select_changes(domain_id: UUID, url: str) -> Select[Any]:
    changes, previous = URL_CHANGES.c, SITEMAPS.alias("previous")
    return (
        select(
            SCANS.c.published_seq.label("number"),
            null().label("event_id"),
            DOMAINS.c.domain,
            SITEMAPS.c.url.label("sitemap"),
            previous.c.url.label("previous_sitemap"),
            null().label("data"),
            changes.scan_id,
            changes.sitemap_id,
            changes.url_hash,
            changes.kind,
            changes.url,
            changes.before,
            changes.after,
            changes.previous_sitemap_id,
            changes.evidence,
            changes.not_before,
            changes.not_after,
        )
        .select_from(SITEMAPS)
        .join(DOMAINS, DOMAINS.c.id == SITEMAPS.c.domain_id)
        .join(URL_CHANGES, changes.sitemap_id == SITEMAPS.c.id)
        .join(SCANS, SCANS.c.id == changes.scan_id)
        .outerjoin(previous, previous.c.id == changes.previous_sitemap_id)
        .where(
            SITEMAPS.c.domain_id == domain_id,
            changes.url_hash == url_hash(url),
            changes.url == url,
            SCANS.c.published_seq.is_not(None),
        )
        .order_by(SCANS.c.published_seq.desc(), changes.sitemap_id.desc())
    )


def _parse_history_position(parts: Sequence[str]) -> tuple[int, UUID]:
    number, sitemap_id = parts
    return parse_bigint(number), UUID(sitemap_id)
