"""The change feed, newest first: each sequence number with its counts, and its events.

The feed itself is read forwards (`change_feed`); people look at what is newest: a list of numbers,
the latest events, and bars of what was added and removed per hour or day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
    case,
    cast,
    collate,
    desc,
    false,
    func,
    literal_column,
    null,
    or_,
    select,
    true,
    type_coerce,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.change_feed import (
    EVENT_KINDS,
    GROUPS,
    KINDS,
    URL_KINDS,
    ChangeView,
    FeedFilter,
    FeedHeadView,
    FeedPosition,
    FeedWindow,
    PageInProgress,
    change_view,
    examined_rows,
    last_number_before,
    read_changes,
    read_head,
    start_position,
    url_columns,
    with_sitemaps,
)
from siteatlas.catalog.domains import tagged_domains
from siteatlas.catalog.paging import CursorScope, Page, bigint_key, page_size, read_page
from siteatlas.catalog.views import MAX_BIGINT
from siteatlas.errors import NotFoundError
from siteatlas.storage.models import ChangeKind, Domain, FeedEvent, FeedEventKind, Scan
from siteatlas.storage.schema import DOMAINS, FEED_EVENTS, SCANS, URL_CHANGES

# The number of published scans that are examined for one list.
MAX_SCANS = 5_000
# Rows of all numbers together: a scan may have many changes and few of the kinds.
MAX_EXAMINED = 50_000
# Changes that are sorted for one page, and how many of a scan a list shows.
MAX_SORTED = 20_000
FIRST = 10
# As `processor.entries` counts sections: the first part of a path that something follows.
SECTION = "^[^:]*://[^/]*(/[^/?#]+/)."
# The end of a scan is written before its transaction commits.
SETTLED_AFTER = timedelta(minutes=10)

_none: ColumnElement[Any] = literal_column("'[]'::jsonb", JSONB)
AnySelect = Select[*tuple[Any, ...]] | CompoundSelect[*tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class PublishedView:
    """One number of the feed: a published scan, or a numbered event such as `scan_failed`.

    `kind` is that of the event, None for a scan. `events` are the kinds of the events of a scan.
    The first complete scan of a site is its baseline; those before it are not compared either.
    """

    seq: int
    scan_id: int | None
    domain: str
    kind: str | None
    error_code: str | None
    partial: bool
    at: datetime
    is_baseline: bool
    is_compared: bool
    url_count: int | None
    change_counts: dict[str, int] | None
    events: list[str]

    @property
    def quiet(self) -> str | None:
        """What it has in common with others that a list shows as one; None if it tells more."""
        if self.is_baseline:
            return "baseline"
        return "unchanged" if self.is_compared and not (self.change_counts or self.events) else None

    def count(self, kinds: frozenset[str] = URL_KINDS) -> int:
        """The number of changes of URLs of these kinds."""
        counts = self.change_counts or {}
        return sum(count for kind, count in counts.items() if kind in kinds)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of the feed behind `after`, up to `until`."""

    after: int
    until: int


async def list_published(
    session: AsyncSession,
    *,
    domain_id: UUID | None = None,
    kinds: frozenset[str] = frozenset(),
    numbers: Numbers = Numbers(0, MAX_BIGINT),
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[PublishedView]:
    """What was published, newest first; with `kinds`, those that have an event of one of them.

    For a page with `kinds`, a bounded number of scans is looked at: it may be empty though more
    follows.
    """
    scope = CursorScope("publications", (domain_id, tuple(sorted(kinds))))
    before = min(scope.read(cursor, bigint_key) or MAX_BIGINT, numbers.until + 1)
    rest = await session.scalar(newest_unexamined_number(domain_id, before)) if kinds else None
    if rest is not None and rest <= numbers.after:
        rest = None
    examined = Numbers(numbers.after if rest is None else rest, before - 1)
    scans = _published_scans(domain_id, kinds, examined)
    events = _with_numbers_of_their_own(domain_id, kinds, examined)
    parts = (newest(part, page_size(limit) + 1) for part in (scans, events))
    both = union_all(*parts).subquery("both")
    statement = select(*both.c).order_by(both.c.seq.desc())
    page = await read_page(
        session, statement, page_size(limit), PublishedView, lambda row: scope.write(row.seq)
    )
    if rest is None or page.next_cursor is not None:
        return page
    return replace(page, next_cursor=scope.write(rest + 1))


def _published_scans(
    domain_id: UUID | None, kinds: frozenset[str], numbers: Numbers
) -> Select[*tuple[object, ...]]:
    is_compared = func.coalesce(Domain.baseline_scan_id < Scan.id, false())
    events = select(func.jsonb_agg(FeedEvent.kind.distinct())).where(
        FeedEvent.scan_id == Scan.id, FeedEvent.seq.is_(None)
    )
    statement = (
        select(
            Scan.published_seq.label("seq"),
            Scan.id.label("scan_id"),
            Domain.domain,
            null().cast(Text).label("kind"),
            null().cast(Text).label("error_code"),
            Scan.partial,
            func.coalesce(Scan.finished_at, Scan.started_at).label("at"),
            func.coalesce(Domain.baseline_scan_id == Scan.id, false()).label("is_baseline"),
            is_compared.label("is_compared"),
            Scan.url_count,
            Scan.change_counts,
            # A baseline has an event for each document: there may be thousands.
            func.coalesce(case((is_compared, events.scalar_subquery())), _none).label("events"),
        )
        .join(Domain, Domain.id == Scan.domain_id)
        .where(within(Scan.published_seq, numbers), Domain.deleted_at.is_(None))
    )
    if domain_id is not None:
        statement = statement.where(Scan.domain_id == domain_id)
    if not kinds:
        return statement
    counted = has_counted(SCANS.c.change_counts, kinds)
    return statement.where(or_(counted, has_events(SCANS.c.id, kinds)))


def within(number: Any, numbers: Numbers) -> ColumnElement[bool]:
    """SQL condition: a number of the feed is one of these."""
    return and_(number > numbers.after, number <= numbers.until)


def _with_numbers_of_their_own(
    domain_id: UUID | None, kinds: frozenset[str], numbers: Numbers
) -> Select[*tuple[object, ...]]:
    statement = select(
        FeedEvent.seq.label("seq"),
        FeedEvent.scan_id,
        FeedEvent.domain,
        cast(FeedEvent.kind, Text).label("kind"),
        FeedEvent.data["error_code"].astext.label("error_code"),
        false().label("partial"),
        FeedEvent.created_at.label("at"),
        false().label("is_baseline"),
        false().label("is_compared"),
        cast(null(), Scan.url_count.type).label("url_count"),
        null().cast(JSONB).label("change_counts"),
        _none.label("events"),
    ).where(within(FeedEvent.seq, numbers))
    if domain_id is not None:
        statement = statement.where(FeedEvent.domain_id == domain_id)
    return of_kinds(statement, kinds or None)


async def _number_before(session: AsyncSession, moment: datetime, head: FeedHeadView) -> int:
    """The last number, of a scan or of its own, that was taken before a moment."""
    of_scan = await last_number_before(session, moment, after=head.retained_from)
    events = select(FeedEvent.seq).where(FeedEvent.seq > of_scan, FeedEvent.created_at < moment)
    return await session.scalar(events.order_by(FeedEvent.seq.desc()).limit(1)) or of_scan


async def last_scan_number(session: AsyncSession, domain_id: UUID | None = None) -> Numbers:
    """The number of the last published scan; none if there is no scan."""
    numbers = select(Scan.published_seq).where(Scan.published_seq.is_not(None))
    if domain_id is not None:
        numbers = numbers.where(Scan.domain_id == domain_id)
    last = await session.scalar(numbers.order_by(Scan.published_seq.desc()).limit(1)) or 0
    return Numbers(max(0, last - 1), last)


async def count_changes(
    session: AsyncSession, numbers: Numbers, domain_id: UUID | None = None
) -> dict[str, int]:
    """The number of events of each kind; without first scans."""
    counts = (
        func.jsonb_each_text(SCANS.c.change_counts).table_valued("kind", "count").render_derived()
    )
    of_urls = (
        select(counts.c.kind, func.sum(cast(counts.c.count, BigInteger)).label("count"))
        .select_from(SCANS.join(DOMAINS, DOMAINS.c.id == SCANS.c.domain_id).join(counts, true()))
        .where(within(SCANS.c.published_seq, numbers), DOMAINS.c.deleted_at.is_(None))
        .group_by(counts.c.kind)
    )
    kind = cast(FEED_EVENTS.c.kind, Text).label("kind")
    of_scans = (
        select(kind, func.count().label("count"))
        .join(SCANS, SCANS.c.id == FEED_EVENTS.c.scan_id)
        .join(DOMAINS, DOMAINS.c.id == SCANS.c.domain_id)
        .where(FEED_EVENTS.c.seq.is_(None), DOMAINS.c.deleted_at.is_(None))
        .where(within(SCANS.c.published_seq, numbers), kind != FeedEventKind.BASELINE)
        # A first scan has an event for each document; none of them is a change.
        .where(DOMAINS.c.baseline_scan_id.is_distinct_from(SCANS.c.id))
        .group_by(kind)
    )
    others = select(kind, func.count().label("count")).where(within(FEED_EVENTS.c.seq, numbers))
    others = others.group_by(kind)
    if domain_id is not None:
        of_urls = of_urls.where(SCANS.c.domain_id == domain_id)
        of_scans = of_scans.where(SCANS.c.domain_id == domain_id)
        others = others.where(FEED_EVENTS.c.domain_id == domain_id)
    rows = await session.execute(union_all(of_urls, of_scans, others))
    totals = Counter[str]()
    for name, count in rows:
        totals[name] += int(count)
    return dict(totals)


def by_group(counts: Mapping[str, int]) -> dict[str, int]:
    """The number of events of each group, from those of each kind."""
    return {
        name: sum(count for kind, count in counts.items() if kind in kinds)
        for name, kinds in GROUPS.items()
    }


async def first_changes(
    session: AsyncSession,
    scans: Sequence[PublishedView],
    kinds: frozenset[str] = URL_KINDS,
    *,
    room: int = MAX_SORTED,
) -> dict[int, list[ChangeView]]:
    """The first changed URLs of each scan, of each kind by their addresses, by number.

    Scans whose changes are too many to sort together show some of their first thousand; `room` is
    how many are not.
    """
    sorted_ids, other_ids = list[int](), list[int]()
    for one in scans:
        if one.scan_id is None or not one.count(kinds):
            continue
        room -= one.count()
        (sorted_ids if room >= 0 else other_ids).append(one.scan_id)
    found: dict[int, list[ChangeView]] = {}
    for ids, bound in ((sorted_ids, MAX_SORTED), (other_ids, 1_000)):
        values = {"ids": ids, "of_kinds": sorted(kinds & URL_KINDS), "bound": bound}
        for row in await session.execute(_first_changes(), values) if ids else ():
            found.setdefault(row.number, []).append(change_view(row))
    return {seq: sorted(changes, key=attrgetter("place")) for seq, changes in found.items()}


async def changes_by_section(session: AsyncSession, scan_id: int) -> dict[str, dict[str, int]]:
    """The number of changes of each kind in each section, among some of the changes of a scan."""
    section = func.coalesce(func.substring(URL_CHANGES.c.url, SECTION), "/").label("section")
    changes = select(section, URL_CHANGES.c.kind).where(URL_CHANGES.c.scan_id == scan_id)
    some = changes.limit(MAX_SORTED).subquery("some")
    statement = select(some.c.section, some.c.kind, func.count()).group_by(*some.c)
    found: dict[str, dict[str, int]] = {}
    for name, kind, count in await session.execute(statement):
        found.setdefault(name, {})[kind] = count
    return found


@cache
def _first_changes() -> Select[Any]:
    scans = (
        select(SCANS.c.id, SCANS.c.published_seq, DOMAINS.c.domain)
        .join(DOMAINS, DOMAINS.c.id == SCANS.c.domain_id)
        .where(SCANS.c.id.in_(bindparam("ids", expanding=True)))
        .subquery("scans")
    )
    bound: BindParameter[int] = bindparam("bound", type_=BigInteger())
    of_scan = select(URL_CHANGES).where(URL_CHANGES.c.scan_id == scans.c.id)
    stored = of_scan.order_by(URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash)
    examined = stored.limit(bound).lateral("examined")
    wanted: BindParameter[Any] = bindparam("of_kinds", expanding=True)
    group, scan = _group_of(examined.c.kind), scans.c.id
    by_url = collate(examined.c.url, "C")
    in_group = func.row_number().over(partition_by=[scan, group], order_by=by_url)
    placed = (
        url_columns(examined.c, scans.c.published_seq, scans.c.domain)
        .add_columns(group.label("group"), in_group.label("in_group"))
        .select_from(scans)
        .join(examined, true())
        .where(examined.c.kind.in_(wanted))
        .subquery("placed")
    )
    turns = [placed.c.in_group, placed.c.group]
    turn = func.row_number().over(partition_by=placed.c.number, order_by=turns).label("turn")
    ordered = select(*placed.c, turn).subquery("ordered")
    return with_sitemaps(ordered).where(ordered.c.turn <= FIRST)


def _group_of(kind: ColumnElement[Any]) -> ColumnElement[int]:
    text = type_coerce(kind, Text())
    places = ((text.in_(sorted(kinds)), place) for place, kinds in enumerate(GROUPS.values()))
    return case(*places, else_=len(GROUPS))


@dataclass(frozen=True, slots=True)
class PublishedPage:
    """The events of one number, or some of them; sorted if they are not too many."""

    published: PublishedView | None
    items: Sequence[ChangeView]
    next_cursor: str | None
    is_sorted: bool


async def read_published(
    session: AsyncSession,
    seq: int,
    *,
    kinds: frozenset[str] = frozenset(),
    limit: int | None = None,
    cursor: str | None = None,
) -> PublishedPage:
    """The events of one number; NotFoundError if it does not exist or is not retained."""
    head = await read_head(session)
    if not head.retained_from < seq <= head.seq:
        raise NotFoundError
    page = await list_published(session, numbers=Numbers(seq - 1, seq), limit=1)
    published = page.items[0] if page.items else None
    wanted = FeedFilter(kinds=kinds or None)
    scope = CursorScope("published", (seq, tuple(sorted(kinds))))
    size = page_size(limit)
    if published is None or published.is_baseline or published.count() > MAX_SORTED:
        start = (
            FeedPosition(seq - 1)
            if cursor is None
            else start_position(head, after=None, cursor=cursor)
        )
        found = await read_changes(session, wanted, replace(head, seq=seq), start, size)
        following = None if found.at_head else found.next_cursor
        return PublishedPage(published, found.items, following, is_sorted=False)
    # What was published does not change, so that a place in it stays the same.
    place = scope.read(cursor, bigint_key) or 0
    values = FeedWindow(FeedFilter(), FeedPosition(seq - 1), seq, 2 * MAX_SORTED).values()
    values |= {"of_kinds": sorted(kinds or KINDS), "size": size + 1, "place": place}
    rows = (await session.execute(_sorted_changes(), values)).all()
    following = scope.write(place + size) if len(rows) > size else None
    return PublishedPage(published, [*map(change_view, rows[:size])], following, is_sorted=True)


@cache
def _sorted_changes() -> Select[Any]:
    examined = examined_rows(FeedWindow(FeedFilter(), FeedPosition(0), 1, 1).shape)
    wanted: BindParameter[Any] = bindparam("of_kinds", expanding=True)
    address = collate(func.coalesce(examined.c.url, examined.c.sitemap_url, ""), "C")
    order = (_group_of(examined.c.kind), address, examined.c.sitemap_id, examined.c.event_id)
    place = func.row_number().over(order_by=order).label("place")
    rows = select(*examined.c, place).where(examined.c.kind.in_(wanted)).order_by(place)
    size: BindParameter[int] = bindparam("size", type_=BigInteger())
    start: BindParameter[int] = bindparam("place", type_=BigInteger())
    shown = rows.limit(size).offset(start).subquery("shown")
    return with_sitemaps(shown).order_by(shown.c.place)


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event, and when it was published."""

    event: ChangeView
    published_at: datetime


@dataclass(frozen=True, slots=True)
class LatestChanges:
    """The newest events. `is_complete`: they are as many as asked for, or all that there are.

    Otherwise reading ended at a bound before, and there may be others, also between these.
    """

    events: list[PublishedEvent]
    is_complete: bool


async def latest_changes(
    session: AsyncSession, wanted: FeedFilter, head: FeedHeadView, limit: int = 100
) -> LatestChanges:
    """The newest events up to a head that was read before, in the same snapshot."""
    numbers = (await session.execute(_newest_numbers(wanted, head, limit))).all()
    page, times = PageInProgress(wanted, limit, MAX_EXAMINED), dict[int, datetime]()
    all_read = len(numbers) < limit
    for seq, published_at in numbers:
        end = await page.fill(session, replace(head, seq=seq), FeedPosition(seq - 1))
        times[seq] = published_at
        if end.done < seq:
            all_read = False
            break
    events = [PublishedEvent(event, times[event.seq]) for event in page.items]
    is_full = len(events) == limit
    if not is_full and not all_read:
        return LatestChanges(events, is_complete=False)
    start = events[-1].event.seq if is_full else head.retained_from
    is_cut = await _has_unexamined_scans(session, wanted, replace(head, retained_from=start))
    return LatestChanges(events, is_complete=not is_cut)


async def _has_unexamined_scans(
    session: AsyncSession, wanted: FeedFilter, head: FeedHeadView
) -> bool:
    # Each scan has its own number, so that most feeds need no statement.
    if head.seq - head.retained_from <= MAX_SCANS:
        return False
    unexamined = _newest_scans(wanted, head).offset(MAX_SCANS).limit(1)
    return (await session.execute(unexamined)).first() is not None


def _newest_numbers(wanted: FeedFilter, head: FeedHeadView, limit: int) -> Select[Any]:
    both = [
        newest(_scans_with_events(wanted, head), limit),
        newest(_numbered_events(wanted, head), limit),
    ]
    return newest(union_all(*both), limit)


def _scans_with_events(wanted: FeedFilter, head: FeedHeadView) -> Select[Any]:
    scans = _newest_scans(wanted, head).limit(MAX_SCANS).subquery("scans")
    return select(scans.c.published_seq.label("seq"), scans.c.published_at).where(
        or_(_has_urls(scans, wanted), has_events(scans.c.id, wanted.kinds))
    )


def _newest_scans(wanted: FeedFilter, head: FeedHeadView) -> Select[Any]:
    ended = func.coalesce(SCANS.c.finished_at, SCANS.c.started_at).label("published_at")
    recent = select(SCANS.c.id, SCANS.c.published_seq, SCANS.c.change_counts, ended).where(
        SCANS.c.published_seq > head.retained_from, SCANS.c.published_seq <= head.seq
    )
    stored = recent.join(DOMAINS, DOMAINS.c.id == SCANS.c.domain_id)
    stored = stored.where(DOMAINS.c.deleted_at.is_(None))
    ordered = stored.order_by(SCANS.c.published_seq.desc())
    return _of_sites(ordered, SCANS.c.domain_id, wanted)


def _has_urls(scans: Subquery, wanted: FeedFilter) -> ColumnElement[bool]:
    if not wanted.shows_urls:
        return false()
    some = select(URL_CHANGES.c.scan_id).where(URL_CHANGES.c.scan_id == scans.c.id).exists()
    if wanted.kinds is None:
        return some
    counts = scans.c.change_counts
    return and_(or_(counts.is_(None), has_counted(counts, wanted.kinds)), some)


def _numbered_events(wanted: FeedFilter, head: FeedHeadView) -> Select[Any]:
    columns = FEED_EVENTS.c
    own = select(columns.seq, columns.created_at.label("published_at")).where(
        columns.seq > head.retained_from, columns.seq <= head.seq
    )
    return _of_sites(of_kinds(own, wanted.kinds), columns.domain_id, wanted)


def _of_sites(rows: Select[Any], domain_id: ColumnElement[UUID], wanted: FeedFilter) -> Select[Any]:
    if wanted.domain_id is not None:
        rows = rows.where(domain_id == wanted.domain_id)
    return rows if wanted.tag is None else rows.where(domain_id.in_(tagged_domains(wanted.tag)))


def newest(rows: AnySelect, limit: int) -> Select[*tuple[Any, ...]]:
    """The rows with the highest `seq`, as a part of a union.

    Each part has its own order and limit: otherwise the server would sort the whole union.
    """
    return select(rows.order_by(desc("seq")).limit(limit).subquery())


def newest_unexamined_number(
    domain_id: UUID | None = None, before: int | None = None
) -> Select[Any]:
    """The number of the newest scan that a list does not examine; no row if it examines all.

    Of one site or of all sites, counted from the newest scan, or from the newest before a number.
    """
    number = SCANS.c.published_seq
    numbers = select(number).where(number.is_not(None))
    if domain_id is not None:
        numbers = numbers.where(SCANS.c.domain_id == domain_id)
    if before is not None:
        numbers = numbers.where(number < before)
    return numbers.order_by(number.desc()).offset(MAX_SCANS).limit(1)


def has_counted(change_counts: ColumnElement[Any], kinds: frozenset[str]) -> ColumnElement[bool]:
    """SQL condition: a scan counted changes of URLs of one of these kinds."""
    counted = (change_counts.has_key(kind) for kind in sorted(kinds & URL_KINDS))
    return or_(false(), *counted)


def has_events(scan_id: ColumnElement[Any], kinds: frozenset[str] | None) -> ColumnElement[bool]:
    """SQL condition: a scan has events of documents or of its site, of these kinds or of any."""
    if kinds is not None and kinds.isdisjoint(EVENT_KINDS):
        return false()
    events = select(FEED_EVENTS.c.id).where(FEED_EVENTS.c.scan_id == scan_id)
    return of_kinds(events, kinds).exists()


def of_kinds(events: Select[Any], kinds: frozenset[str] | None) -> Select[Any]:
    """Only the events of these kinds, or all of them if `kinds` is None."""
    if kinds is None:
        return events
    return events.where(FEED_EVENTS.c.kind.in_(sorted(kinds & EVENT_KINDS)))


class Period(StrEnum):
    """What a bar of the charts stands for."""

    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return timedelta(hours=1) if self is Period.HOUR else timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PeriodChanges:
    """URLs that were added and removed in one hour or day of UTC."""

    start: datetime
    added: int
    removed: int
    scans: int


class ChangesOverTime:
    """Reads changes over time; what is over is read once by each process."""

    def __init__(self) -> None:
        self._settled: dict[tuple[Period, datetime], PeriodChanges] = {}
        self._numbers: dict[tuple[UUID, datetime], int] = {}
        self._totals: dict[tuple[UUID, Numbers], dict[str, int]] = {}

    async def read(self, session: AsyncSession, period: Period, count: int) -> list[PeriodChanges]:
        """The changes of each of the last hours or days, scanned or not, the oldest first."""
        now, current = await _current_period(session, period)
        wanted = [current - back * period.length for back in range(count - 1, -1, -1)]
        unknown = [start for start in wanted if (period, start) not in self._settled]
        found = await _read_since(session, period, unknown[0])
        known = {start: found.get(start, PeriodChanges(start, 0, 0, 0)) for start in unknown}
        self._remember(period, known, before=now - SETTLED_AFTER - period.length)
        return [known.get(start) or self._settled[period, start] for start in wanted]

    async def numbers(
        self, session: AsyncSession, since: datetime | None, until: datetime | None
    ) -> Numbers:
        """The numbers that were taken in this time and are retained; None is no bound."""
        head = await read_head(session)
        after = head.retained_from if since is None else await self._before(session, since, head)
        last = head.seq if until is None else await self._before(session, until, head)
        return Numbers(after, max(after, last))

    async def totals(
        self, session: AsyncSession, numbers: Numbers, domain_id: UUID | None = None
    ) -> dict[str, int]:
        """`count_changes`; for all sites, what was published before today is counted once."""
        if domain_id is not None:
            return await count_changes(session, numbers, domain_id)
        head = await read_head(session)
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        middle = await self._before(session, today, head)
        middle = min(max(middle, numbers.after), numbers.until)
        key = (head.feed_id, Numbers(numbers.after, middle))
        if key not in self._totals:
            self._totals = dict([*self._totals.items()][-100:])
            self._totals[key] = await count_changes(session, key[1])
        return Counter(self._totals[key]) + Counter(
            await count_changes(session, Numbers(middle, numbers.until))
        )

    async def _before(self, session: AsyncSession, moment: datetime, head: FeedHeadView) -> int:
        key = (head.feed_id, moment)
        if key not in self._numbers:
            found = await _number_before(session, moment, head)
            if moment > datetime.now(UTC) - SETTLED_AFTER:
                return found
            self._numbers = dict([*self._numbers.items()][-200:])
            self._numbers[key] = found
        return max(self._numbers[key], head.retained_from)

    def _remember(
        self, period: Period, known: dict[datetime, PeriodChanges], *, before: datetime
    ) -> None:
        self._settled |= {(period, start): one for start, one in known.items() if start <= before}
        for oldest in sorted(self._settled, key=lambda key: key[1])[:-200]:
            del self._settled[oldest]


async def _current_period(session: AsyncSession, period: Period) -> tuple[datetime, datetime]:
    now, start = (await session.execute(select(func.now(), _start_of(period, func.now())))).one()
    return now, start


async def _read_since(
    session: AsyncSession, period: Period, since: datetime
) -> dict[datetime, PeriodChanges]:
    """The changes of each period with a scan, from this one on.

    Scans are found by their number, as their end has no index: what a scan before the margin has
    published came before all that ended in these periods.
    """
    earlier = await last_number_before(session, since - SETTLED_AFTER)
    start = _start_of(period, Scan.finished_at).label("start")
    added = _sum_of((ChangeKind.ADDED, ChangeKind.BACK))
    removed = _sum_of((ChangeKind.REMOVED, ChangeKind.EXPIRED))
    statement = (
        select(start, added, removed, func.count())
        .where(Scan.published_seq > earlier, Scan.finished_at >= since)
        .group_by(start)
    )
    rows = await session.execute(statement)
    return {row[0]: PeriodChanges(row[0], int(row[1]), int(row[2]), row[3]) for row in rows}


def _start_of(period: Period, moment: Any) -> Any:
    """The start of the hour or day of UTC that a moment is in.

    The words are part of the statement, not parameters, because it groups by them.
    """
    return func.date_trunc(literal_column(f"'{period.value}'"), moment, literal_column("'UTC'"))


def _sum_of(kinds: tuple[ChangeKind, ...]) -> Any:
    counts = [
        func.coalesce(cast(Scan.change_counts[kind.value].astext, BigInteger), 0) for kind in kinds
    ]
    return func.coalesce(func.sum(sum(counts[1:], counts[0])), 0)
