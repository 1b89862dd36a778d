"""What changed between two scans of a site: the difference of two past states, from the feed.

Changes are read in the order of their entries, a bounded number per request; a page is bounded in
bytes, too. Few changes between the scans are found through the scans. Otherwise those of all scans
that the feed retains are read, which have an index in this order. `entry_differences.py` puts the
changes of an entry together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    case,
    func,
    literal,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import InputError, ScanNotFound
from siteatlas.insights.change_views import changed_fields, shown_state
from siteatlas.insights.entry_differences import (
    NumberRange,
    departures,
    differences,
    own_changes,
)
from siteatlas.insights.page_reading import PageCapacity, stream_rows
from siteatlas.insights.pages import (
    MAX_BIGINT,
    MIN_BIGINT,
    CursorScope,
    Page,
    page_size,
    parse_bigint,
)
from siteatlas.insights.past_urls import find_past_number
from siteatlas.storage.tables import SCANS, SITEMAPS, URL_CHANGES

# Changes of all scans that one request looks at.
MAX_EXAMINED = 10_000
FIRST = (UUID(int=0), MIN_BIGINT)
LAST = (UUID(int=2**128 - 1), MAX_BIGINT)
Entry = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class ComparedEntry:
    """How one entry of a document differs between two scans; `before` and `after` as in the feed.

    `previous_sitemap` is where a URL that moved was listed after the earlier scan. `before` is then
    what was listed there, unless this document listed the URL as well.
    """

    kind: str
    url: str
    sitemap: str
    sitemap_id: UUID
    previous_sitemap: str | None
    previous_sitemap_id: UUID | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    fields: list[str]


@dataclass(frozen=True, slots=True)
class ComparisonPage(Page[ComparedEntry]):
    """One page of differences between the numbers of two scans."""

    from_seq: int = 0
    to_seq: int = 0


async def compare_scans(
    session: AsyncSession,
    domain_id: UUID,
    scans: tuple[int, int],
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> ComparisonPage:
    """The differences between an earlier and a later scan, in the order of (sitemap, hash)."""
    start, end = [await _published_number(session, domain_id, scan) for scan in scans]
    if start > end:
        raise InputError("The first scan must be the earlier one.")
    numbers = NumberRange(await find_past_number(session, domain_id, start), end)
    scope = CursorScope("scan comparison", (domain_id, *scans))
    after = scope.read(cursor, _parse_entry) or FIRST
    items, place, examined = await _read(session, domain_id, numbers, after, page_size(limit))
    behind = None if place is None else scope.write(*place)
    return ComparisonPage(items, behind, examined, start, end)


async def _published_number(session: AsyncSession, domain_id: UUID, scan_id: int) -> int:
    """The number of a published scan of a site; ScanNotFound if there is none."""
    statement = select(SCANS.c.published_seq).where(
        SCANS.c.id == scan_id, SCANS.c.domain_id == domain_id
    )
    number: int | None = (await session.execute(statement)).scalar()
    if number is None:
        raise ScanNotFound(f"Scan {scan_id} is not a published scan of this site.")
    return number


def _parse_entry(parts: Sequence[str]) -> Entry:
    """The position in a comparison that a pagination cursor names."""
    sitemap_id, url_hash = parts
    return UUID(sitemap_id), parse_bigint(url_hash)


async def _read(
    session: AsyncSession, domain_id: UUID, numbers: NumberRange, after: Entry, size: int
) -> tuple[list[ComparedEntry], Entry | None, int]:
    """The differences behind an entry; the last entry looked at, None at the end of the list."""
    changes, last, examined = await _next_changes(session, domain_id, numbers, after)
    found = differences(changes, numbers).limit(size + 1)
    room, items, place = PageCapacity(size), list[ComparedEntry](), after
    async with aclosing(stream_rows(session, found, room)) as rows:
        async for row in rows:
            if room.is_full:
                return items, place, examined
            items.append(_compared(row))
            room.add(items[-1])
            place = (row.sitemap_id, row.url_hash)
    return items, last, examined


async def _next_changes(
    session: AsyncSession, domain_id: UUID, numbers: NumberRange, after: Entry
) -> tuple[Select[Any], Entry | None, int]:
    """The changes behind an entry to look at, the last entry if others follow, and their number."""
    between = (await session.execute(_count_between(domain_id, numbers))).scalar_one()
    if between <= MAX_EXAMINED:
        return _changes_between(domain_id, numbers, after), None, between
    end = (await session.execute(_window_end(domain_id, after))).one_or_none()
    examined = 0 if end is None else end.changes
    last = (end.sitemap_id, end.url_hash) if end is not None and examined == MAX_EXAMINED else None
    return _changes(domain_id, after, last or LAST), last, examined


def _scans_between(domain_id: UUID, numbers: NumberRange) -> Select[Any]:
    """The scans of a site whose numbers are in a range."""
    of_site = SCANS.c.domain_id == domain_id
    return select(SCANS.c.id).where(of_site, numbers.holds(SCANS.c.published_seq))


def _count_between(domain_id: UUID, numbers: NumberRange) -> Select[Any]:
    """How many changes a range of numbers has, up to one more than a request looks at."""
    scans = _scans_between(domain_id, numbers).subquery("scans")
    of_scan = (
        select(URL_CHANGES.c.scan_id)
        .where(URL_CHANGES.c.scan_id == scans.c.id)
        .limit(MAX_EXAMINED + 1)
        .correlate(scans)
        .lateral("of_scan")
    )
    some = select(of_scan.c.scan_id).select_from(scans).join(of_scan, true())
    return select(func.count()).select_from(some.limit(MAX_EXAMINED + 1).subquery("some"))


def _changes_between(domain_id: UUID, numbers: NumberRange, after: Entry) -> Select[Any]:
    """All changes of a range of numbers behind an entry, through the key of changes."""
    in_range = URL_CHANGES.c.scan_id.in_(_scans_between(domain_id, numbers))
    both = [
        changes.where(in_range, tuple_(document, URL_CHANGES.c.url_hash) > tuple_(*after))
        for changes, document in _sources()
    ]
    return select(union_all(*both).subquery("between"))


def _sources() -> list[tuple[Select[Any], ColumnElement[UUID]]]:
    """Changes of entries where they are, and where they moved from; with the documents."""
    changes = URL_CHANGES.c
    return [(own_changes(), changes.sitemap_id), (departures(), changes.previous_sitemap_id)]


def _window_end(domain_id: UUID, after: Entry) -> Select[Any]:
    """The last entry of the next changes, and how many they are, from the indexes alone."""
    both = [
        _in_order(domain_id, after, LAST, changes.with_only_columns(*key), document, MAX_EXAMINED)
        for changes, document in _sources()
        for key in [(document.label("sitemap_id"), URL_CHANGES.c.url_hash)]
    ]
    found = union_all(*(select(one.limit(MAX_EXAMINED).subquery()) for one in both)).subquery()
    order = (found.c.sitemap_id, found.c.url_hash)
    window = select(found).order_by(*order).limit(MAX_EXAMINED).subquery("window")
    last = select(window.c.sitemap_id, window.c.url_hash, func.count().over().label("changes"))
    return last.order_by(window.c.sitemap_id.desc(), window.c.url_hash.desc()).limit(1)


def _changes(domain_id: UUID, after: Entry, last: Entry) -> Select[Any]:
    """All changes of a site behind an entry and up to another."""
    both = [_in_order(domain_id, after, last, *source, None) for source in _sources()]
    return select(union_all(*(select(one.subquery()) for one in both)).subquery("changes"))


def _in_order(
    domain_id: UUID,
    after: Entry,
    last: Entry,
    changes: Select[Any],
    document: ColumnElement[UUID],
    limit: int | None,
) -> Select[Any]:
    """Changes of a site behind an entry and up to another, document by document.

    `limit` is how many of each document are read.
    """
    sitemap, url_hash = SITEMAPS.c.id, URL_CHANGES.c.url_hash
    behind = case((sitemap == after[0], after[1]), else_=literal(MIN_BIGINT, BigInteger()))
    up_to = case((sitemap == last[0], last[1]), else_=literal(MAX_BIGINT, BigInteger()))
    of_document = (
        changes.where(
            document == sitemap,
            or_(url_hash > behind, sitemap != after[0]),
            url_hash >= behind,
            url_hash <= up_to,
        )
        .order_by(url_hash)
        .limit(limit)
        .correlate(SITEMAPS)
        .lateral("of_document")
    )
    return (
        select(*of_document.c)
        .select_from(SITEMAPS)
        .join(of_document, true())
        .where(SITEMAPS.c.domain_id == domain_id, sitemap >= after[0], sitemap <= last[0])
        .order_by(sitemap, of_document.c.url_hash)
    )


def _compared(row: Any) -> ComparedEntry:
    """The view of one difference."""
    before, after = shown_state(row.before), shown_state(row.after)
    return ComparedEntry(
        kind=row.kind,
        url=row.url,
        sitemap=row.sitemap,
        sitemap_id=row.sitemap_id,
        previous_sitemap=row.previous_sitemap,
        previous_sitemap_id=row.previous_sitemap_id,
        before=before,
        after=after,
        fields=changed_fields(before, after),
    )
