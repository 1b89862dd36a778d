"""What changed between two scans of a site: the difference of two past states, from the feed.

Changes are read in the order of their entries, a bounded number per request; a page is bounded in
bytes, too. Few changes between the scans are found through the scans. Otherwise those of all scans
that the feed retains are read, which have an index in this order. `differences` puts the changes of
an entry together: its first state and its last, where a URL that moved came from, and what became
of one that moved away.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB, distinct_on
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import LateralFromClause

from siteatlas.catalog.change_feed import changed_fields, shown_state
from siteatlas.catalog.paging import (
    CursorScope,
    Items,
    Page,
    PageCapacity,
    page_size,
    parse_bigint,
    stream_rows,
)
from siteatlas.catalog.url_lists import find_past_number
from siteatlas.catalog.views import (
    MAX_BIGINT,
    MIN_BIGINT,
    Count,
    Example,
    FreeObject,
    Shown,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    one_of,
)
from siteatlas.errors import InputError, ScanNotFound
from siteatlas.storage.models import ChangeKind
from siteatlas.storage.schema import SCANS, SITEMAPS, URL_CHANGES

# Changes of all scans that one request looks at.
MAX_EXAMINED = 10_000
# So many moves of one URL are followed.
MAX_MOVES = 100

Entry = tuple[UUID, int]
LAST = (UUID(int=2**128 - 1), MAX_BIGINT)

_change = URL_CHANGES.c
_scan = SCANS.c
_nothing = cast(null(), JSONB())


@dataclass(frozen=True, slots=True)
class ComparedEntryView(View):
    """How one entry differs between two scans."""

    kind: Annotated[
        str, one_of(ChangeKind), Example("changed"), Field(description="As in the change feed.")
    ]
    url: Annotated[Url, Example("https://example.com/about")]
    sitemap: Annotated[Url, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID, Example(Shown.sitemap_id)]
    previous_sitemap: Annotated[Url | None, Field(description="Where a URL that moved was listed.")]
    previous_sitemap_id: UUID | None
    before: Annotated[
        FreeObject | None,
        Example({"changefreq": "daily"}),
        Field(description="What was listed; null if the URL was not listed."),
    ]
    after: Annotated[
        FreeObject | None,
        Example({"changefreq": "weekly"}),
        Field(
            description="What is listed after the later scan; null if the URL is not listed any "
            "more."
        ),
    ]
    fields: Annotated[
        list[Word],
        declared(maxItems=100),
        Example(["changefreq"]),
        Field(description="What differs between `before` and `after`."),
    ]


@dataclass(frozen=True, slots=True)
class ComparisonView(Page[ComparedEntryView]):
    """One page of differences; it may be empty and still have a `next_cursor`."""

    items: Items[ComparedEntryView]
    examined: Annotated[
        SmallCount | None,
        Field(description="Number of changes examined for this page, about 10,000 at most."),
    ]
    from_seq: Annotated[
        Count, Example(3), Field(description="Number of the earlier scan in the change feed.")
    ]
    to_seq: Annotated[
        Count, Example(7), Field(description="Number of the later scan in the change feed.")
    ]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers of the feed after `start`, up to `end`."""

    start: int
    end: int

    def holds(self, number: ColumnElement[int]) -> ColumnElement[bool]:
        """SQL condition: a number is in the range."""
        return and_(number > self.start, number <= self.end)


async def compare_scans(
    session: AsyncSession,
    domain_id: UUID,
    scans: tuple[int, int],
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> ComparisonView:
    """The differences between an earlier and a later scan, in the order of (sitemap, hash)."""
    start, end = [await _published_number(session, domain_id, scan) for scan in scans]
    if start > end:
        raise InputError("The first scan must be the earlier one.")
    numbers = NumberRange(await find_past_number(session, domain_id, start), end)
    scope = CursorScope("scan comparison", (domain_id, *scans))
    after = scope.read(cursor, _parse_entry) or (UUID(int=0), MIN_BIGINT)
    items, place, examined = await _read(session, domain_id, numbers, after, page_size(limit))
    behind = None if place is None else scope.write(*place)
    return ComparisonView(items, behind, examined, start, end)


async def _published_number(session: AsyncSession, domain_id: UUID, scan_id: int) -> int:
    statement = select(SCANS.c.published_seq).where(
        SCANS.c.id == scan_id, SCANS.c.domain_id == domain_id
    )
    number: int | None = (await session.execute(statement)).scalar()
    if number is None:
        raise ScanNotFound(f"Scan {scan_id} is not a published scan of this site.")
    return number


def _parse_entry(parts: Sequence[str]) -> Entry:
    sitemap_id, url_hash = parts
    return UUID(sitemap_id), parse_bigint(url_hash)


async def _read(
    session: AsyncSession, domain_id: UUID, numbers: NumberRange, after: Entry, size: int
) -> tuple[list[ComparedEntryView], Entry | None, int]:
    changes, last, examined = await _next_changes(session, domain_id, numbers, after)
    found = differences(changes, numbers).limit(size + 1)
    room, items, place = PageCapacity(size), list[ComparedEntryView](), after
    async with aclosing(stream_rows(session, found, room)) as rows:
        async for row in rows:
            if room.is_full:
                return items, place, examined
            items.append(_compared(row))
            room.add(items[-1])
            place = (row.sitemap_id, row.url_hash)
    return items, last, examined


def _compared(row: Any) -> ComparedEntryView:
    before, after = shown_state(row.before), shown_state(row.after)
    return ComparedEntryView(
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
    in_range = URL_CHANGES.c.scan_id.in_(_scans_between(domain_id, numbers))
    both = [
        changes.where(in_range, tuple_(document, URL_CHANGES.c.url_hash) > tuple_(*after))
        for changes, document in _sources()
    ]
    return select(union_all(*both).subquery("between"))


def _sources() -> list[tuple[Select[Any], ColumnElement[UUID]]]:
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


_common_columns = ("scan_id", "url_hash", "kind", "url", "not_after")


def own_changes() -> Select[Any]:
    """Changes of entries in their documents; before a URL moved to one, it was not listed there."""
    before = case((_change.previous_sitemap_id.is_(None), _change.before), else_=_nothing)
    return select(
        *(_change[name] for name in _common_columns),
        _change.sitemap_id,
        before.label("before"),
        _change.after,
        _change.previous_sitemap_id.label("moved_from"),
        _change.before.label("moved_state"),
        null().cast(_change.sitemap_id.type).label("moved_to"),
        _change.after.is_(None).label("is_over"),
    )


def departures() -> Select[Any]:
    """The same changes for the entries that URLs moved from. `is_over`: the URL stayed nowhere."""
    return select(
        *(_change[name] for name in _common_columns),
        _change.previous_sitemap_id.label("sitemap_id"),
        _change.before,
        _nothing.label("after"),
        null().cast(_change.sitemap_id.type).label("moved_from"),
        _nothing.label("moved_state"),
        _change.sitemap_id.label("moved_to"),
        _change.after.is_(None).label("is_over"),
    ).where(_change.previous_sitemap_id.is_not(None))


def differences(changes: Select[Any], numbers: NumberRange) -> Select[Any]:
    """The entries among these changes that differ, in the order of (sitemap, hash)."""
    entries = _entries(changes, numbers)
    origin, fate = _origins(entries, numbers), _fates(entries, numbers)
    came_from = case((origin.c.is_left, origin.c.sitemap_id))
    before = func.coalesce(entries.c.before, case((origin.c.is_left, origin.c.state)))
    is_reported = or_(before.is_distinct_from(entries.c.after), came_from.is_not(None))
    sitemap, previous = SITEMAPS.alias("sitemap"), SITEMAPS.alias("previous")
    return (
        select(
            *(entries.c[name] for name in ("sitemap_id", "url_hash", "url", "after")),
            before.label("before"),
            _kind(entries, origin, fate).label("kind"),
            sitemap.c.url.label("sitemap"),
            came_from.label("previous_sitemap_id"),
            previous.c.url.label("previous_sitemap"),
        )
        .join(sitemap, sitemap.c.id == entries.c.sitemap_id)
        .outerjoin(origin, _is_of(origin, entries))
        .outerjoin(fate, _is_of(fate, entries))
        .outerjoin(previous, previous.c.id == came_from)
        .where(is_reported, func.coalesce(fate.c.is_over, true()))
        .order_by(entries.c.sitemap_id, entries.c.url_hash)
    )


def _kind(entries: CTE, origin: FromClause, fate: FromClause) -> ColumnElement[Any]:
    return case(
        (entries.c.after.is_(None), func.coalesce(fate.c.kind, entries.c.end_kind)),
        (origin.c.is_left, ChangeKind.MOVED.value),
        (entries.c.before.is_not(None), ChangeKind.CHANGED.value),
        (origin.c.is_new, origin.c.kind),
        (origin.c.key_hash.is_not(None), ChangeKind.DUPLICATE_ADDED.value),
        else_=entries.c.arrival_kind,
    )


def _is_of(found: FromClause, entries: FromClause) -> ColumnElement[bool]:
    return and_(found.c.key_sitemap == entries.c.sitemap_id, found.c.key_hash == entries.c.url_hash)


def _entries(changes: Select[Any], numbers: NumberRange) -> CTE:
    """Each entry with its state before the first and after the last of its changes in the range.

    `arrival_...` is the last change by which it came to be listed, `end_...` the first by which it
    was no longer.
    """
    one = changes.order_by(None).subquery("one")
    in_order = [_scan.published_seq, one.c.not_after]
    backwards = [column.desc() for column in in_order]
    is_arrival = and_(one.c.before.is_(None), one.c.moved_to.is_(None))
    arrivals, ends = [is_arrival.desc(), *backwards], [one.c.after.is_not(None), *in_order]

    def first(column: ColumnElement[Any], order: list[Any], label: str) -> ColumnElement[Any]:
        entry = [one.c.sitemap_id, one.c.url_hash]
        return func.first_value(column).over(partition_by=entry, order_by=order).label(label)

    ranked = (
        select(
            *(one.c[name] for name in ("sitemap_id", "url_hash", "url", "after")),
            first(one.c.before, in_order, "before"),
            first(one.c.kind, arrivals, "arrival_kind"),
            first(_scan.published_seq, arrivals, "arrival_number"),
            first(one.c.moved_from, arrivals, "moved_from"),
            first(one.c.moved_state, arrivals, "moved_state"),
            first(one.c.kind, ends, "end_kind"),
            first(_scan.published_seq, ends, "end_number"),
            first(one.c.moved_to, ends, "moved_to"),
            first(one.c.is_over, ends, "is_over"),
            func.row_number()
            .over(partition_by=[one.c.sitemap_id, one.c.url_hash], order_by=backwards)
            .label("place"),
        )
        .join(SCANS, SCANS.c.id == one.c.scan_id)
        .where(numbers.holds(_scan.published_seq))
        .subquery("ranked")
    )
    listed_once = or_(ranked.c.before.is_not(None), ranked.c.after.is_not(None))
    return select(ranked).where(ranked.c.place == 1, listed_once).cte("entries")


def _origins(entries: CTE, numbers: NumberRange) -> FromClause:
    """Where URLs that moved came from, for entries that are listed at the end.

    `is_left`: the URL was listed there before the range, as `state`, and is not at its end.
    `is_new`: within the range it came to be listed there by a change of this kind.
    """
    followed = _followed_back(entries, numbers)
    last = (
        select(followed)
        .ext(distinct_on(followed.c.key_sitemap, followed.c.key_hash))
        .order_by(followed.c.key_sitemap, followed.c.key_hash, followed.c.moves.desc())
        .subquery("last")
    )
    first_state = _first_state(last, numbers)
    is_elsewhere = last.c.sitemap_id != last.c.key_sitemap
    is_left = and_(
        ~last.c.is_new, last.c.moves < MAX_MOVES, is_elsewhere, ~_is_listed_again(last, numbers)
    )
    return (
        select(
            *(last.c[name] for name in ("key_sitemap", "key_hash", "sitemap_id", "kind", "is_new")),
            func.coalesce(first_state.c.before, last.c.state).label("state"),
            is_left.label("is_left"),
        )
        .select_from(last)
        .join(first_state, true(), isouter=True)
        .subquery("origin")
    )


def _followed_back(entries: CTE, numbers: NumberRange) -> CTE:
    """The documents that URLs moved from, one after the other, back to the start of the range.

    At each of them `number` is when the URL moved on, and `state` what was listed then.
    """
    moved = and_(entries.c.after.is_not(None), entries.c.moved_from.is_not(None))
    start = select(
        entries.c.sitemap_id.label("key_sitemap"),
        entries.c.url_hash.label("key_hash"),
        entries.c.moved_from.label("sitemap_id"),
        entries.c.arrival_number.label("number"),
        entries.c.moved_state.label("state"),
        entries.c.arrival_kind.label("kind"),
        false().label("is_new"),
        literal(1, Integer()).label("moves"),
    ).where(moved)
    steps = start.cte("followed_back", recursive=True)
    arrival = _last_arrival(steps, numbers)
    return steps.union_all(
        select(
            steps.c.key_sitemap,
            steps.c.key_hash,
            func.coalesce(arrival.c.moved_from, steps.c.sitemap_id),
            arrival.c.number,
            arrival.c.state,
            arrival.c.kind,
            arrival.c.moved_from.is_(None),
            steps.c.moves + 1,
        )
        .select_from(steps)
        .join(arrival, true())
        .where(~steps.c.is_new, steps.c.moves < MAX_MOVES)
    )


def _last_arrival(steps: CTE, numbers: NumberRange) -> LateralFromClause:
    came = or_(_change.before.is_(None), _change.previous_sitemap_id.is_not(None))
    return (
        _changes_of(steps)
        .add_columns(_change.previous_sitemap_id.label("moved_from"), _change.before.label("state"))
        .where(came, _scan.published_seq > numbers.start, _scan.published_seq < steps.c.number)
        .order_by(_scan.published_seq.desc())
        .limit(1)
        .correlate(steps)
        .lateral("arrival")
    )


def _first_state(last: FromClause, numbers: NumberRange) -> LateralFromClause:
    """What the first document listed before the range, if that changed before the URL moved on."""
    return (
        _changes_of(last)
        .add_columns(_change.before)
        .where(
            ~last.c.is_new, _scan.published_seq > numbers.start, _scan.published_seq < last.c.number
        )
        .order_by(_scan.published_seq)
        .limit(1)
        .correlate(last)
        .lateral("first_state")
    )


def _is_listed_again(last: FromClause, numbers: NumberRange) -> ColumnElement[bool]:
    newest = (
        _changes_of(last)
        .add_columns(_change.after)
        .where(_scan.published_seq > last.c.number, _scan.published_seq <= numbers.end)
        .order_by(_scan.published_seq.desc())
        .limit(1)
        .correlate(last)
        .subquery("newest")
    )
    later, scan = URL_CHANGES.alias("later"), SCANS.alias("later_scan")
    has_left = (
        select(later.c.scan_id)
        .join(scan, scan.c.id == later.c.scan_id)
        .where(
            later.c.previous_sitemap_id == last.c.sitemap_id,
            later.c.url_hash == last.c.key_hash,
            scan.c.published_seq > newest.c.number,
            scan.c.published_seq <= numbers.end,
        )
        .correlate(newest, last)
        .exists()
    )
    listed = select(newest.c.number).where(newest.c.after.is_not(None), ~has_left)
    return listed.correlate(last).exists()


def _fates(entries: CTE, numbers: NumberRange) -> FromClause:
    """What became of URLs that moved away from entries which are not listed at the end.

    `is_over`: no document lists the URL any more by these moves; the change that ended it has the
    kind. Otherwise the entry where it is listed tells of the move.
    """
    followed = _followed(entries, numbers)
    is_over = or_(followed.c.is_over, followed.c.moves == MAX_MOVES)
    kind = case((followed.c.is_over, followed.c.kind), else_=ChangeKind.REMOVED.value)
    return (
        select(
            followed.c.key_sitemap,
            followed.c.key_hash,
            is_over.label("is_over"),
            kind.label("kind"),
        )
        .ext(distinct_on(followed.c.key_sitemap, followed.c.key_hash))
        .order_by(followed.c.key_sitemap, followed.c.key_hash, followed.c.moves.desc())
        .subquery("fate")
    )


def _followed(entries: CTE, numbers: NumberRange) -> CTE:
    moved = and_(
        entries.c.before.is_not(None), entries.c.after.is_(None), entries.c.moved_to.is_not(None)
    )
    start = select(
        entries.c.sitemap_id.label("key_sitemap"),
        entries.c.url_hash.label("key_hash"),
        entries.c.moved_to.label("sitemap_id"),
        entries.c.end_number.label("number"),
        entries.c.end_kind.label("kind"),
        entries.c.is_over,
        literal(1, Integer()).label("moves"),
    ).where(moved)
    steps = start.cte("followed", recursive=True)
    end = _next_end(steps, numbers)
    return steps.union_all(
        select(
            steps.c.key_sitemap,
            steps.c.key_hash,
            func.coalesce(end.c.moved_to, steps.c.sitemap_id),
            end.c.number,
            end.c.kind,
            end.c.is_over,
            steps.c.moves + 1,
        )
        .select_from(steps)
        .join(end, true())
        .where(~steps.c.is_over, steps.c.moves < MAX_MOVES)
    )


def _next_end(steps: CTE, numbers: NumberRange) -> LateralFromClause:
    both: list[Select[Any]] = []
    for source in (own_changes().where(_change.after.is_(None)), departures()):
        one = source.subquery("one")
        changes = (
            select(_scan.published_seq.label("number"), one.c.kind, one.c.moved_to, one.c.is_over)
            .join(SCANS, SCANS.c.id == one.c.scan_id)
            .where(
                one.c.sitemap_id == steps.c.sitemap_id,
                one.c.url_hash == steps.c.key_hash,
                _scan.published_seq > steps.c.number,
                _scan.published_seq <= numbers.end,
            )
            .correlate(steps)
        )
        both.append(changes)
    found = union_all(*both).subquery("found")
    return select(found).order_by(found.c.number).limit(1).correlate(steps).lateral("next_end")


def _changes_of(place: FromClause) -> Select[Any]:
    return (
        select(_scan.published_seq.label("number"), _change.kind)
        .select_from(URL_CHANGES)
        .join(SCANS, SCANS.c.id == _change.scan_id)
        .where(_change.sitemap_id == place.c.sitemap_id, _change.url_hash == place.c.key_hash)
    )
