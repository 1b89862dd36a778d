"""What changed between two scans of a site: the difference of two past states, from the feed.

The changes of an entry between the scans are put together: the state before the first and the state
after the last. They are read in the order of their entries, a bounded number per request; what
cancels out is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Subquery,
    and_,
    case,
    func,
    literal,
    null,
    or_,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import LateralFromClause

from siteatlas.errors import InputError, ScanNotFound
from siteatlas.insights.change_views import changed_fields, shown_state
from siteatlas.insights.pages import (
    MAX_BIGINT,
    MIN_BIGINT,
    CursorScope,
    Page,
    page_size,
    parse_bigint,
)
from siteatlas.insights.past_urls import find_past_number
from siteatlas.storage.models import ChangeKind
from siteatlas.storage.tables import SCANS, SITEMAPS, URL_CHANGES

# Changes of all scans that one request looks at.
MAX_EXAMINED = 10_000
FIRST = (UUID(int=0), MIN_BIGINT)
LAST = (UUID(int=2**128 - 1), MAX_BIGINT)
NAMES = (
    "scan_id",
    "sitemap_id",
    "url_hash",
    "kind",
    "url",
    "before",
    "after",
    "previous_sitemap_id",
)
Entry = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class ComparedEntry:
    """How one entry of a document differs between two scans; `before` and `after` as in the feed.

    `previous_sitemap` is where a URL that moved was listed.
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


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers of the feed after `start`, up to `end`."""

    start: int
    end: int


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
        raise ScanNotFound
    return number


def _parse_entry(parts: Sequence[str]) -> Entry:
    """The position in a comparison that a pagination cursor names."""
    sitemap_id, url_hash = parts
    return UUID(sitemap_id), parse_bigint(url_hash)


async def _read(
    session: AsyncSession, domain_id: UUID, numbers: NumberRange, after: Entry, size: int
) -> tuple[list[ComparedEntry], Entry | None, int]:
    """The differences behind an entry; the last entry looked at, None at the end of the list."""
    end = (await session.execute(_window_end(domain_id, after))).one_or_none()
    if end is None:
        return [], None, 0
    last = (end.sitemap_id, end.url_hash) if end.changes == MAX_EXAMINED else None
    entries = _differences(_changes(domain_id, after, last or LAST), numbers).subquery("entries")
    found = _with_origins(entries, numbers).limit(size + 1)
    rows = (await session.execute(found)).all()
    items = [_compared(row) for row in rows[:size]]
    if len(rows) > size:
        last = (rows[size - 1].sitemap_id, rows[size - 1].url_hash)
    return items, last, end.changes


def _window_end(domain_id: UUID, after: Entry) -> Select[Any]:
    """The last entry of the next changes, and how many they are, from the index alone."""
    window = (
        _changes(domain_id, after, LAST, "sitemap_id", "url_hash")
        .limit(MAX_EXAMINED)
        .subquery("window")
    )
    order = (window.c.sitemap_id.desc(), window.c.url_hash.desc())
    last = select(window.c.sitemap_id, window.c.url_hash, func.count().over().label("changes"))
    return last.order_by(*order).limit(1)


def _changes(domain_id: UUID, after: Entry, last: Entry, *names: str) -> Select[Any]:
    """The changes of a site behind an entry and up to another, document by document."""
    sitemap, columns = SITEMAPS.c.id, URL_CHANGES.c
    behind = case((sitemap == after[0], after[1]), else_=literal(MIN_BIGINT, BigInteger()))
    up_to = case((sitemap == last[0], last[1]), else_=literal(MAX_BIGINT, BigInteger()))
    changes = (
        select(*(columns[name] for name in names or NAMES))
        .where(
            columns.sitemap_id == sitemap,
            or_(columns.url_hash > behind, sitemap != after[0]),
            columns.url_hash >= behind,
            columns.url_hash <= up_to,
        )
        .order_by(columns.url_hash)
        .limit(None if names == () else MAX_EXAMINED)
        .correlate(SITEMAPS)
        .lateral("changes")
    )
    return (
        select(*changes.c)
        .select_from(SITEMAPS)
        .join(changes, true())
        .where(SITEMAPS.c.domain_id == domain_id, sitemap >= after[0], sitemap <= last[0])
        .order_by(sitemap, changes.c.url_hash)
    )


def _differences(changes: Select[Any], numbers: NumberRange) -> Select[Any]:
    """The last change of each entry in a range of numbers, with what was before the first one.

    An entry that moved on within the range is told of where it is now.
    """
    one = changes.order_by(None).subquery("one")
    entry = [one.c.sitemap_id, one.c.url_hash]
    number = SCANS.c.published_seq

    def first(name: str) -> ColumnElement[Any]:
        """A value of the first change of the entry."""
        return func.first_value(one.c[name]).over(partition_by=entry, order_by=number)

    ranked = (
        select(
            *one.c,
            number.label("number"),
            first("kind").label("first_kind"),
            first("before").label("first_before"),
            first("previous_sitemap_id").label("moved_from"),
            func.min(number).over(partition_by=entry).label("first_number"),
            func.row_number().over(partition_by=entry, order_by=number.desc()).label("place"),
        )
        .join(SCANS, SCANS.c.id == one.c.scan_id)
        .where(number > numbers.start, number <= numbers.end)
        .subquery("ranked")
    )
    return (
        select(ranked)
        .where(ranked.c.place == 1, ~_moved_on(ranked, numbers))
        .order_by(ranked.c.sitemap_id, ranked.c.url_hash)
    )


def _with_origins(entries: Subquery, numbers: NumberRange) -> Select[Any]:
    """Entries that differ. One that moved here has what was before in the document it came from.

    That document may have got it within the range, from nowhere or from a third one.
    """
    origin = _origin(entries, numbers)
    is_given = origin.c.number.is_not(None)
    before = case((is_given, origin.c.before), else_=entries.c.first_before)
    came_from = case(
        (and_(is_given, origin.c.before.is_(None)), null()),
        else_=func.coalesce(origin.c.previous_sitemap_id, entries.c.moved_from),
    )
    kind = case(
        (and_(is_given, origin.c.before.is_(None)), origin.c.kind), else_=entries.c.first_kind
    )
    sitemap, previous = SITEMAPS.alias("sitemap"), SITEMAPS.alias("previous")
    return (
        select(
            *(entries.c[name] for name in ("sitemap_id", "url_hash", "url", "kind", "after")),
            sitemap.c.url.label("sitemap"),
            before.label("first_before"),
            kind.label("first_kind"),
            came_from.label("previous_sitemap_id"),
            previous.c.url.label("previous_sitemap"),
        )
        .join(sitemap, sitemap.c.id == entries.c.sitemap_id)
        .join(origin, true(), isouter=True)
        .outerjoin(previous, previous.c.id == came_from)
        .where(or_(before.is_distinct_from(entries.c.after), came_from != entries.c.sitemap_id))
        .order_by(entries.c.sitemap_id, entries.c.url_hash)
    )


def _origin(entries: Subquery, numbers: NumberRange) -> LateralFromClause:
    """The first change, within the range, of an entry in the document that it moved from."""
    columns, number = URL_CHANGES.c, SCANS.c.published_seq
    return (
        select(columns.kind, columns.before, columns.previous_sitemap_id, number.label("number"))
        .select_from(URL_CHANGES)
        .join(SCANS, SCANS.c.id == columns.scan_id)
        .where(
            columns.sitemap_id == entries.c.moved_from,
            columns.url_hash == entries.c.url_hash,
            number > numbers.start,
            number < entries.c.first_number,
        )
        .order_by(number)
        .limit(1)
        .correlate(entries)
        .lateral("origin")
    )


def _moved_on(ranked: Subquery, numbers: NumberRange) -> ColumnElement[bool]:
    """SQL condition: after its last change, an entry moved to another document."""
    later, scan = URL_CHANGES.alias("later"), SCANS.alias("later_scan")
    return (
        select(later.c.scan_id)
        .join(scan, scan.c.id == later.c.scan_id)
        .where(
            later.c.previous_sitemap_id == ranked.c.sitemap_id,
            later.c.url_hash == ranked.c.url_hash,
            scan.c.published_seq > ranked.c.number,
            scan.c.published_seq <= numbers.end,
        )
        .correlate(ranked)
        .exists()
    )


def _compared(row: Any) -> ComparedEntry:
    """The view of one difference."""
    before, after = shown_state(row.first_before), shown_state(row.after)
    if after is None:
        kind = row.kind
    elif before is None or row.previous_sitemap_id is not None:
        kind = row.first_kind
    else:
        kind = ChangeKind.CHANGED
    return ComparedEntry(
        kind=kind,
        url=row.url,
        sitemap=row.sitemap,
        sitemap_id=row.sitemap_id,
        previous_sitemap=row.previous_sitemap,
        previous_sitemap_id=row.previous_sitemap_id,
        before=before,
        after=after,
        fields=changed_fields(before, after),
    )
