"""The change feed, newest first: each sequence number with its counts, and its events.

The feed itself is read forwards (`change_feed`); people look at what is newest: a list of numbers,
the latest events, and bars of what was added and removed per hour or day.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Select,
    Subquery,
    Text,
    and_,
    case,
    cast,
    desc,
    false,
    func,
    literal_column,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.change_feed import (
    EVENT_KINDS,
    URL_KINDS,
    ChangeView,
    FeedFilter,
    FeedHeadView,
    FeedPage,
    FeedPosition,
    PageInProgress,
    last_number_before,
    read_changes,
    read_head,
)
from siteatlas.catalog.domains import tagged_domains
from siteatlas.catalog.paging import CursorScope, Page, bigint_key, page_size, read_page
from siteatlas.errors import NotFoundError
from siteatlas.storage.models import ChangeKind, Domain, FeedEvent, Scan
from siteatlas.storage.schema import DOMAINS, FEED_EVENTS, SCANS, URL_CHANGES

# The number of published scans that are examined for one list.
MAX_SCANS = 5_000
# Rows of all numbers together: a scan may have many changes and few of the kinds.
MAX_EXAMINED = 50_000
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


async def list_published(
    session: AsyncSession,
    *,
    domain_id: UUID | None = None,
    kinds: frozenset[str] = frozenset(),
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[PublishedView]:
    """What was published, newest first; with `kinds`, those that have an event of one of them.

    For a page with `kinds`, a bounded number of scans is looked at: it may be empty though more
    follows.
    """
    scope = CursorScope("publications", (domain_id, tuple(sorted(kinds))))
    before = scope.read(cursor, bigint_key)
    rest = await session.scalar(newest_unexamined_number(domain_id, before)) if kinds else None
    scans = _published_scans(domain_id, kinds, before, rest)
    statement: Select[*tuple[object, ...]] = scans
    if not kinds:
        events = _with_numbers_of_their_own(domain_id, before)
        parts = (newest(part, page_size(limit) + 1) for part in (scans, events))
        both = union_all(*parts).subquery("both")
        statement = select(*both.c)
    statement = statement.order_by(statement.selected_columns["seq"].desc())
    page = await read_page(
        session, statement, page_size(limit), PublishedView, lambda row: scope.write(row.seq)
    )
    if rest is None or page.next_cursor is not None:
        return page
    return replace(page, next_cursor=scope.write(rest + 1))


def _published_scans(
    domain_id: UUID | None, kinds: frozenset[str], before: int | None, after: int | None
) -> Select[*tuple[object, ...]]:
    is_compared = func.coalesce(Domain.baseline_scan_id < Scan.id, false())
    events = select(func.jsonb_agg(FeedEvent.kind.distinct())).where(
        FeedEvent.scan_id == Scan.id, FeedEvent.seq.is_(None)
    )
    statement = (
        select(
            Scan.published_seq.label("seq"),
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
        .where(Scan.published_seq.is_not(None), Domain.deleted_at.is_(None))
    )
    if domain_id is not None:
        statement = statement.where(Scan.domain_id == domain_id)
    if kinds:
        counted = has_counted(SCANS.c.change_counts, kinds)
        statement = statement.where(or_(counted, has_events(SCANS.c.id, kinds)))
    if after is not None:
        statement = statement.where(Scan.published_seq > after)
    return statement if before is None else statement.where(Scan.published_seq < before)


def _with_numbers_of_their_own(
    domain_id: UUID | None, before: int | None
) -> Select[*tuple[object, ...]]:
    statement = select(
        FeedEvent.seq.label("seq"),
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
    ).where(FeedEvent.seq.is_not(None))
    if domain_id is not None:
        statement = statement.where(FeedEvent.domain_id == domain_id)
    return statement if before is None else statement.where(FeedEvent.seq < before)


async def read_published(session: AsyncSession, seq: int, limit: int) -> FeedPage:
    """The first events of one number; NotFoundError if it does not exist or is not retained."""
    head = await read_head(session)
    if not head.retained_from < seq <= head.seq:
        raise NotFoundError
    return await read_changes(
        session, FeedFilter(), replace(head, seq=seq), FeedPosition(seq - 1), limit
    )


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

    async def read(self, session: AsyncSession, period: Period, count: int) -> list[PeriodChanges]:
        """The changes of each of the last hours or days, scanned or not, the oldest first."""
        now, current = await _current_period(session, period)
        wanted = [current - back * period.length for back in range(count - 1, -1, -1)]
        unknown = [start for start in wanted if (period, start) not in self._settled]
        found = await _read_since(session, period, unknown[0])
        known = {start: found.get(start, PeriodChanges(start, 0, 0, 0)) for start in unknown}
        self._remember(period, known, before=now - SETTLED_AFTER - period.length)
        return [known.get(start) or self._settled[period, start] for start in wanted]

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
