"""The change feed: numbered events of all sites, read in pages in their order.

The order is (number, events of documents and domains by id, changes of URLs by sitemap and hash).
A page is bounded in items, in bytes, in the rows that a filter examines and in the numbers that it
passes, so a scan with many changes continues on the next page, and a page may be empty though more
follows. Callers read in one snapshot, in which the head and the events fit together. A number is
taken at the end of a transaction: the row of the head is locked until COMMIT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    ColumnElement,
    DateTime,
    Select,
    Subquery,
    Text,
    Update,
    Uuid,
    any_,
    bindparam,
    case,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.types import TypeEngine

from siteatlas.catalog.domains import tagged_domains
from siteatlas.catalog.paging import (
    Cursor,
    CursorScope,
    Items,
    PageCapacity,
    page_size,
    parse_bigint,
    stream_rows,
)
from siteatlas.catalog.sitemaps import DONE
from siteatlas.catalog.views import (
    Count,
    Example,
    FreeObject,
    Name,
    Shown,
    Url,
    View,
    Word,
    declared,
    one_of,
    view_example,
)
from siteatlas.errors import CursorExpired, InputError
from siteatlas.scanner.reading.entries import restored_text
from siteatlas.storage.models import (
    ChangeKind,
    Domain,
    FeedEventKind,
    FeedHead,
    RemovalEvidence,
    Scan,
)
from siteatlas.storage.schema import (
    DOMAINS,
    FEED_EVENTS,
    FEED_HEAD,
    SCANS,
    SITEMAP_SCANS,
    SITEMAPS,
    URL_CHANGES,
)
from siteatlas.storage.session import Reader

# The maximum number of rows in a window, and that a page of the feed examines.
MAX_EXAMINED = 10_000
# A page passes at most as many scans: those without changes cost a look each.
MAX_NUMBERS = 5_000
URL_KINDS = frozenset(kind.value for kind in ChangeKind)
EVENT_KINDS = frozenset(kind.value for kind in FeedEventKind)
KINDS = [kind.value for kind in (*ChangeKind, *FeedEventKind)]
# What people tell apart. A first scan is not a change, so `baseline` is in no group.
GROUPS = {
    "added": frozenset({"added", "back"}),
    "removed": frozenset({"removed", "expired"}),
    "changed": frozenset({"changed"}),
}
GROUPS["other"] = frozenset(KINDS) - {"baseline"}.union(*GROUPS.values())
FIELDS = ("lastmod", "changefreq", "priority", "extras")
_cursors = CursorScope("changes")


@dataclass(frozen=True, slots=True)
class FeedHeadView:
    """The last number of the feed. Events up to `retained_from` have been removed."""

    seq: int
    retained_from: int
    feed_id: UUID

    @property
    def limit_text(self) -> str:
        """What to tell a reader whose number is beyond the head."""
        return f"The change feed has only reached number {self.seq}."


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """All events up to the number `done`, and those of the next number up to one of its events."""

    done: int
    event_id: int | None = None
    entry: tuple[UUID, int] | None = None

    @property
    def is_between_numbers(self) -> bool:
        """Whether the position is not inside the events of one number."""
        return self.event_id is None and self.entry is None

    @property
    def reached(self) -> int:
        """The last number of which something has been read."""
        return self.done if self.is_between_numbers else self.done + 1

    def cursor(self, feed_id: UUID) -> str:
        """The position as text that a reader sends back."""
        if self.entry is not None:
            return _cursors.write(feed_id, self.done, *self.entry)
        if self.event_id is not None:
            return _cursors.write(feed_id, self.done, self.event_id)
        return _cursors.write(feed_id, self.done)


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """Which events to show: of one site, of those that have a tag now, or of all; which kinds."""

    domain_id: UUID | None = None
    kinds: frozenset[str] | None = None
    tag: str | None = None

    @property
    def shows_events(self) -> bool:
        """Whether events of documents and domains can match."""
        return self.kinds is None or not self.kinds.isdisjoint(EVENT_KINDS)

    @property
    def shows_urls(self) -> bool:
        """Whether changes of URLs can match."""
        return self.kinds is None or not self.kinds.isdisjoint(URL_KINDS)


def group_place(kind: str) -> int:
    """The place of the group of a kind; after all of them for `baseline`."""
    return next((n for n, kinds in enumerate(GROUPS.values()) if kind in kinds), len(GROUPS))


@dataclass(frozen=True, slots=True)
class ChangeView(View):
    """One event of the change feed."""

    id: Annotated[
        Word,
        Example("change-7-3b9a8d521f644f0e9d7c6e2b8c1a4f35-5b1f0a9c3d2e7f68"),
        Field(description="Fixed: the same event always has the same id."),
    ]
    seq: Annotated[
        Count,
        Example(7),
        Field(description="The sequence number; all events of a scan have the same."),
    ]
    kind: Annotated[str, one_of(KINDS), Example("changed")]
    domain: Annotated[Name, Example("example.com")]
    url: Annotated[
        Url | None,
        Example("https://example.com/about"),
        Field(description="Null for events of documents and domains."),
    ]
    sitemap: Annotated[Url | None, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[
        UUID | None,
        Example(Shown.sitemap_id),
        Field(description="With `url`, the key of the entry that changed."),
    ]
    previous_sitemap: Annotated[
        Url | None, Field(description="With `moved`: where the URL was listed.")
    ]
    previous_sitemap_id: UUID | None
    scan_id: Annotated[Count | None, Example(7)]
    not_before: Annotated[
        datetime | None,
        Example(Shown.noon),
        Field(description="The last read that showed the old state."),
    ]
    not_after: Annotated[
        datetime | None,
        Example(Shown.later),
        Field(description="The read that showed the new state."),
    ]
    before: Annotated[
        FreeObject | None,
        Example({"lastmod": "2025-11-01T00:00:00Z"}),
        Field(description="The values listed before; null if the URL was not listed."),
    ]
    after: Annotated[
        FreeObject | None,
        Example({"lastmod": "2025-11-15T00:00:00Z"}),
        Field(description="All values listed now; null if the URL is not listed."),
    ]
    fields: Annotated[
        list[Word],
        declared(maxItems=100),
        Example(["lastmod"]),
        Field(description="The values that differ between `before` and `after`."),
    ]
    evidence: Annotated[
        Annotated[str, one_of(RemovalEvidence)] | None,
        Field(description="With `removed`: what proves it."),
    ]
    data: Annotated[
        FreeObject | None, Field(description="Details of events of documents and domains.")
    ]

    @property
    def place(self) -> tuple[int, int, str]:
        """Where a list for people shows it: in its scan, its group, and by its address."""
        return (self.seq, group_place(self.kind), self.url or self.sitemap or "")


@dataclass(frozen=True, slots=True)
class FeedPage(View):
    """One page of the change feed: all events of the numbers from `from_seq` to `to_seq`.

    The last events of a page may belong to the number after `to_seq`; the next page has the rest.
    """

    items: Annotated[Items[ChangeView], Example([view_example(ChangeView)])]
    from_seq: Annotated[Count, Example(7)]
    to_seq: Annotated[
        Count,
        Example(7),
        Field(description="The last number whose events are complete with this page."),
    ]
    next_cursor: Annotated[
        Cursor,
        Example("WyI1…Il0"),
        Field(description="Where the next page starts; never null."),
    ]
    at_head: Annotated[
        bool,
        Example(True),
        Field(
            description="True if nothing more has been published. A page may be empty and not at "
            "the head: continue with `next_cursor`."
        ),
    ]
    feed_id: Annotated[
        UUID,
        Example("9e1d4c6a-2b7f-4d3e-8a5c-0f6b1d2e3c4a"),
        Field(
            description="Renewed when the database is restored; cursors of another feed are "
            "expired."
        ),
    ]
    retained_from: Annotated[
        Count, Example(0), Field(description="Events up to this number have been removed.")
    ]


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
        self._step = size + 1 if wanted.kinds is None else 1_000
        self._examined = 0
        # Scans in the next window; it grows while there is little to read.
        self._numbers = 20
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
        if not position.is_between_numbers or position.done + 1 == head.seq:
            return position.done + 1
        numbers = min(self._numbers, MAX_NUMBERS - self._passed)
        self._passed += numbers
        self._numbers *= 5
        limit = number_at(self._wanted, position.done, head.seq, numbers)
        return (await session.execute(limit)).scalar() or head.seq

    async def _read_window(
        self, session: AsyncSession, start: FeedPosition, upper: int
    ) -> FeedPosition:
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


async def read_head(session: Reader) -> FeedHeadView:
    """The head of the feed; read before the events, or in the same snapshot."""
    statement = select(FeedHead.seq, FeedHead.retained_from, FeedHead.feed_id)
    return FeedHeadView(*(await session.execute(statement)).one())


async def last_number_before(
    session: Reader,
    moment: datetime,
    *,
    after: int = 0,
    domain_id: UUID | None = None,
    inclusive: bool = False,
) -> int:
    """The last number of a scan that ended before a moment; `after` if there is none behind it.

    With `inclusive`, also of one that ended at that moment. Reads the scans since, newest first.
    """
    ended = Scan.finished_at <= moment if inclusive else Scan.finished_at < moment
    numbers = select(Scan.published_seq).where(Scan.published_seq > after, ended)
    if domain_id is not None:
        numbers = numbers.where(Scan.domain_id == domain_id)
    newest = numbers.order_by(Scan.published_seq.desc()).limit(1)
    return await session.scalar(newest) or after


def start_position(head: FeedHeadView, *, after: int | None, cursor: str | None) -> FeedPosition:
    """Where a request starts: behind a number, at a cursor, or at the oldest event retained."""
    if after is not None and cursor is not None:
        raise InputError("Use either after or cursor, not both.")
    if after is not None:
        return _retained(head, FeedPosition(after))
    found = _cursors.read(cursor, _parse_feed_position)
    if found is None:
        return FeedPosition(head.retained_from)
    feed_id, position = found
    if feed_id != head.feed_id:
        raise _expired(head)
    return _retained(head, position)


def _retained(head: FeedHeadView, position: FeedPosition) -> FeedPosition:
    if position.done < head.retained_from:
        raise _expired(head)
    if position.reached > head.seq:
        raise _expired(head, f"{head.limit_text} Read the current state again.")
    return position


def _expired(head: FeedHeadView, message: str | None = None) -> CursorExpired:
    earliest = FeedPosition(head.retained_from).cursor(head.feed_id)
    return CursorExpired(message, earliest_cursor=earliest)


def _parse_feed_position(parts: Sequence[str]) -> tuple[UUID, FeedPosition]:
    feed_id, done, *inside = parts
    event_id = entry = None
    if len(inside) == 1:
        event_id = parse_bigint(inside[0])
    elif inside:
        sitemap_id, url_hash = inside
        entry = (UUID(sitemap_id), parse_bigint(url_hash))
    return UUID(feed_id), FeedPosition(parse_bigint(done), event_id, entry)


def change_view(row: Any) -> ChangeView:
    """The view of one row of the feed."""
    is_of_url = row.url is not None
    before, after = shown_state(row.before), shown_state(row.after)
    return ChangeView(
        id=_change_id(row) if is_of_url else f"event-{row.event_id}",
        seq=row.number,
        kind=row.kind,
        domain=row.domain,
        url=row.url,
        sitemap=row.sitemap,
        sitemap_id=row.sitemap_id,
        previous_sitemap=row.previous_sitemap,
        previous_sitemap_id=row.previous_sitemap_id,
        scan_id=row.scan_id,
        not_before=row.not_before,
        not_after=row.not_after,
        before=before,
        after=after,
        fields=changed_fields(before, after),
        evidence=row.evidence,
        data=row.data,
    )


def _change_id(row: Any) -> str:
    entry = row.url_hash % (1 << 64)
    return f"change-{row.scan_id}-{row.sitemap_id.hex}-{entry:016x}"


def shown_state(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """The values listed for a URL in the form that lists of URLs have, from the stored one."""
    if not state or not {"lastmod", "lastmod_text"} & state.keys():
        return state
    moment = state.get("lastmod")
    lastmod = None if moment is None else datetime.fromisoformat(moment)
    listed = restored_text(lastmod, state.get("lastmod_text"))
    dates = {"lastmod": lastmod, "lastmod_text": listed}
    rest = {name: value for name, value in state.items() if name not in dates}
    return {name: value for name, value in dates.items() if value is not None} | rest


def changed_fields(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[str]:
    """The fields that differ between two states of an entry; none without both of them."""
    if before is None or after is None:
        return []
    keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    # The same date in two forms is one field to a reader.
    differing = {"lastmod" if key == "lastmod_text" else key for key in keys}
    return [name for name in FIELDS if name in differing] + sorted(differing - set(FIELDS))


def number_at(wanted: FeedFilter, done: int, upper: int, place: int) -> Select[Any]:
    """The number of the scan at this place behind `done`; no row if there are fewer."""
    numbers = select(Scan.published_seq).where(
        Scan.published_seq > done, Scan.published_seq <= upper
    )
    if wanted.domain_id is not None:
        numbers = numbers.where(Scan.domain_id == wanted.domain_id)
    if wanted.tag is not None:
        numbers = numbers.where(Scan.domain_id.in_(tagged_domains(wanted.tag)))
    return numbers.order_by(Scan.published_seq).offset(place - 1).limit(1)


@dataclass(frozen=True, slots=True)
class WindowShape:
    """What the statement of a window depends on; all else is a parameter of it."""

    has_events: bool
    has_urls: bool
    of_domain: bool
    of_tag: bool
    of_kinds: bool
    behind_event: bool
    behind_entry: bool


@dataclass(frozen=True, slots=True)
class FeedWindow:
    """At most `rows` rows behind a position, up to the number `upper`.

    A window that starts inside a number ends with it.
    """

    wanted: FeedFilter
    start: FeedPosition
    upper: int
    rows: int

    @property
    def shape(self) -> WindowShape:
        """The shape of its statement."""
        return WindowShape(
            has_events=self.wanted.shows_events and self.start.entry is None,
            has_urls=self.wanted.shows_urls,
            of_domain=self.wanted.domain_id is not None,
            of_tag=self.wanted.tag is not None,
            of_kinds=self.wanted.kinds is not None,
            behind_event=self.start.event_id is not None,
            behind_entry=self.start.entry is not None,
        )

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows because none of the wanted kinds can follow in its number."""
        return not (self.shape.has_events or self.shape.has_urls)

    def values(self) -> dict[str, Any]:
        """The values of the parameters of its statement."""
        shape = self.shape
        given: dict[str, Any] = {"done": self.start.done, "upper": self.upper, "rows": self.rows}
        if shape.of_domain:
            given["of_domain"] = self.wanted.domain_id
        if shape.of_tag:
            given["of_tag"] = self.wanted.tag
        if shape.of_kinds:
            given["of_kinds"] = sorted(self.wanted.kinds or ())
        if shape.behind_event:
            given["behind_event"] = self.start.event_id
        if self.start.entry is not None:
            given["behind_sitemap"], given["behind_hash"] = self.start.entry
        return given


# Events of a number come before the changes of URLs.
_of_event, _of_url = 0, 1
_feed_order = ("number", "part", "event_id", "sitemap_id", "url_hash")
# The columns that all sources have, in this order; null where a source has no value.
_feed_types: dict[str, TypeEngine[Any]] = {
    "number": BigInteger(),
    "part": BigInteger(),
    "event_id": BigInteger(),
    "sitemap_id": Uuid(),
    "url_hash": BigInteger(),
    "domain": Text(),
    "kind": Text(),
    "url": Text(),
    "sitemap_url": Text(),
    "previous_sitemap_id": Uuid(),
    "scan_id": BigInteger(),
    "not_before": DateTime(timezone=True),
    "not_after": DateTime(timezone=True),
    "before": JSONB(),
    "after": JSONB(),
    "evidence": Text(),
    "data": JSONB(),
}
_done = bindparam("done", type_=BigInteger())
_upper = bindparam("upper", type_=BigInteger())
_rows = bindparam("rows", type_=BigInteger())
_domain = bindparam("of_domain", type_=Uuid())
_tag = bindparam("of_tag", type_=Text())


@cache
def hits_and_last(shape: WindowShape) -> Select[Any]:
    """The rows of a window that match the kinds, and always its last one, as the next start."""
    examined = examined_rows(shape)
    place = func.row_number().over(order_by=[examined.c[name] for name in _feed_order])
    wanted: BindParameter[Any] = bindparam("of_kinds", expanding=True)
    hit = examined.c.kind.in_(wanted) if shape.of_kinds else true()
    marked = select(
        *examined.c, hit.label("hit"), place.label("place"), func.count().over().label("rows")
    ).subquery("marked")
    shown = or_(marked.c.hit, marked.c.place == marked.c.rows)
    return with_sitemaps(marked).where(shown).order_by(marked.c.place)


def with_sitemaps(rows: Subquery) -> Select[Any]:
    """The rows with the addresses of their sitemaps, as `change_view` needs them."""
    sitemap, previous = SITEMAPS.alias("sitemap"), SITEMAPS.alias("previous")
    return (
        select(
            *rows.c,
            func.coalesce(rows.c.sitemap_url, sitemap.c.url).label("sitemap"),
            previous.c.url.label("previous_sitemap"),
        )
        .outerjoin(sitemap, sitemap.c.id == rows.c.sitemap_id)
        .outerjoin(previous, previous.c.id == rows.c.previous_sitemap_id)
    )


def position_of(row: Any) -> FeedPosition:
    """The position behind one row of the feed."""
    if row.part == _of_url:
        return FeedPosition(row.number - 1, entry=(row.sitemap_id, row.url_hash))
    return FeedPosition(row.number - 1, event_id=row.event_id)


def examined_rows(shape: WindowShape) -> Subquery:
    """The rows of a window, of all kinds."""
    sources: list[Select[Any]] = []
    if shape.has_events:
        sources += [_events_of_scans(shape), _numbered_events(shape)]
    if shape.has_urls:
        sources.append(_changes_of_scans(shape))
    together = union_all(*(select(source.subquery()) for source in sources)).subquery("together")
    order = [together.c[name] for name in _feed_order]
    return select(together).order_by(*order).limit(_rows).subquery("examined")


def _numbers(shape: WindowShape) -> Subquery:
    number = SCANS.c.published_seq
    scans = (
        select(SCANS.c.id.label("scan_id"), number.label("number"), DOMAINS.c.domain)
        .join(DOMAINS, DOMAINS.c.id == SCANS.c.domain_id)
        .where(number > _done, number <= _upper, DOMAINS.c.deleted_at.is_(None))
    )
    if shape.of_domain:
        scans = scans.where(SCANS.c.domain_id == _domain)
    if shape.of_tag:
        scans = scans.where(SCANS.c.domain_id.in_(tagged_domains(_tag)))
    return scans.subquery("numbers")


def _events_of_scans(shape: WindowShape) -> Select[Any]:
    numbers, columns = _numbers(shape), FEED_EVENTS.c
    of_scan = select(FEED_EVENTS).where(columns.scan_id == numbers.c.scan_id, columns.seq.is_(None))
    events = _behind_event(of_scan, shape).order_by(columns.id).limit(_rows).lateral("events")
    found = _event_columns(events.c, numbers.c.number, numbers.c.domain, events.c.not_after)
    rows = found.select_from(numbers).join(events, true())
    return rows.order_by(numbers.c.number, events.c.id).limit(_rows)


def _numbered_events(shape: WindowShape) -> Select[Any]:
    columns = FEED_EVENTS.c
    # Their time is when they were written.
    seen = func.coalesce(columns.not_after, columns.created_at)
    rows = _event_columns(columns, columns.seq, columns.domain, seen)
    rows = _behind_event(rows.where(columns.seq > _done, columns.seq <= _upper), shape)
    if shape.of_domain:
        rows = rows.where(columns.domain_id == _domain)
    if shape.of_tag:
        rows = rows.where(columns.domain_id.in_(tagged_domains(_tag)))
    return rows.order_by(columns.seq, columns.id).limit(_rows)


def _behind_event(events: Select[Any], shape: WindowShape) -> Select[Any]:
    behind = FEED_EVENTS.c.id > bindparam("behind_event", type_=BigInteger())
    return events.where(behind) if shape.behind_event else events


def _event_columns(events: Any, number: Any, domain: Any, not_after: Any) -> Select[Any]:
    return _feed_columns(
        number=number,
        part=literal(_of_event),
        event_id=events.id,
        sitemap_id=events.sitemap_id,
        domain=domain,
        kind=events.kind,
        sitemap_url=events.sitemap,
        scan_id=events.scan_id,
        not_before=events.not_before,
        not_after=not_after,
        data=events.data,
    )


def _changes_of_scans(shape: WindowShape) -> Select[Any]:
    numbers, columns = _numbers(shape), URL_CHANGES.c
    of_scan = select(URL_CHANGES).where(columns.scan_id == numbers.c.scan_id)
    if shape.behind_entry:
        behind = tuple_(
            bindparam("behind_sitemap", type_=Uuid()), bindparam("behind_hash", type_=BigInteger())
        )
        of_scan = of_scan.where(tuple_(columns.sitemap_id, columns.url_hash) > behind)
    ordered = of_scan.order_by(columns.sitemap_id, columns.url_hash)
    changes = ordered.limit(_rows).lateral("changes")
    found = url_columns(changes.c, numbers.c.number, numbers.c.domain)
    rows = found.select_from(numbers).join(changes, true())
    order = (numbers.c.number, changes.c.sitemap_id, changes.c.url_hash)
    return rows.order_by(*order).limit(_rows)


def url_columns(changes: Any, number: Any, domain: Any) -> Select[Any]:
    """The columns of the feed, of changes of URLs."""
    shown = {name: changes[name] for name in _feed_types if name in changes}
    return _feed_columns(number=number, part=literal(_of_url), domain=domain, **shown)


def _feed_columns(**given: Any) -> Select[Any]:
    columns: list[ColumnElement[Any]] = [
        (type_coerce(given[name], type_) if name in given else null().cast(type_)).label(name)
        for name, type_ in _feed_types.items()
    ]
    return select(*columns)


@dataclass(frozen=True, slots=True)
class FeedLoad:
    """The range of the feed, and the removals that wait for a proof."""

    head: int
    retained_from: int
    domains_held: int
    urls_held: int


async def feed_load(session: AsyncSession) -> FeedLoad:
    """The state of the feed at this moment; sites without held removals are not read."""
    head = await read_head(session)
    held = select(func.count(), func.coalesce(func.sum(Domain.missing_count), 0)).where(
        Domain.removals_held_since.is_not(None), Domain.deleted_at.is_(None)
    )
    domains, urls = (await session.execute(held)).one()
    return FeedLoad(head.seq, head.retained_from, domains, int(urls))


async def number_scan(session: AsyncSession, scan_id: int) -> None:
    """Give a scan its number; nothing may follow in the transaction but COMMIT."""
    await session.execute(_number_scan, {"of_scan": scan_id})


async def announce_failure(
    session: AsyncSession, domain_id: UUID, job_id: int, error_code: str
) -> None:
    """Write `scan_failed` for a watched site; the transaction should end with this."""
    scan_id = await session.scalar(_scan_of_job, {"of_job": job_id})
    data = {"error_code": error_code}
    values = {"of_domain": domain_id, "its_scan": scan_id, "its_data": data}
    await session.execute(_number_failure, values)


async def announce_deletion(session: AsyncSession, domain_id: UUID, name: str) -> None:
    """Write `domain_forgotten` for a site that had this name; the transaction ends with this."""
    values = {"of_domain": domain_id, "its_name": name, "its_scan": None, "its_data": {}}
    await session.execute(_number_deletion, values)


def next_number() -> ReturningUpdate[int]:
    """The statement that takes the next number of the feed, for the end of a transaction."""
    return update(FEED_HEAD).values(seq=FEED_HEAD.c.seq + 1).returning(FEED_HEAD.c.seq)


def _scan_numbering() -> Update:
    """Give a scan its number and note it on its site; both rows are locked already."""
    head = next_number().cte("head")
    numbered = (
        update(SCANS)
        .where(SCANS.c.id == bindparam("of_scan"))
        .values(
            published_seq=select(head.c.seq).scalar_subquery(),
            # The clock, not the start of the transaction: it may have waited for locks.
            finished_at=func.clock_timestamp(),
        )
        .returning(SCANS.c.domain_id, SCANS.c.published_seq)
        .cte("numbered")
    )
    return (
        update(DOMAINS)
        .where(DOMAINS.c.id == numbered.c.domain_id)
        .values(last_published_seq=numbered.c.published_seq)
    )


def _event_numbering(
    kind: FeedEventKind, name: ColumnElement[Any], condition: ColumnElement[bool]
) -> Any:
    site = select(DOMAINS.c.id, name.label("domain")).where(DOMAINS.c.id == _domain, condition)
    its_site = site.cte("site")
    head = next_number().where(select(its_site.c.id).exists()).cte("head")
    noted = (
        update(DOMAINS)
        .where(DOMAINS.c.id == _domain)
        .values(last_published_seq=select(head.c.seq).scalar_subquery())
        .where(select(head.c.seq).exists())
        .cte("noted")
    )
    event = select(
        head.c.seq,
        bindparam("its_scan", type_=BigInteger()).label("scan_id"),
        its_site.c.id.label("domain_id"),
        its_site.c.domain,
        literal(kind, FEED_EVENTS.c.kind.type).label("kind"),
        bindparam("its_data", type_=JSONB()).label("data"),
    ).join_from(head, its_site, true())
    names = [column.name for column in event.selected_columns]
    return insert(FEED_EVENTS).from_select(names, event).add_cte(noted)


_number_scan = _scan_numbering()
_number_failure = _event_numbering(
    FeedEventKind.SCAN_FAILED, DOMAINS.c.domain, DOMAINS.c.watched & DOMAINS.c.deleted_at.is_(None)
)
_number_deletion = _event_numbering(
    FeedEventKind.DOMAIN_FORGOTTEN, bindparam("its_name", type_=Text()), true()
)
_scan_of_job = select(SCANS.c.id).where(SCANS.c.job_id == bindparam("of_job"))

_scan = bindparam("of_scan", type_=BigInteger())
_kind = bindparam("its_kind", type_=FEED_EVENTS.c.kind.type)
_data = bindparam("its_data", type_=JSONB())
_document_events = select(
    _scan.label("scan_id"),
    SITEMAPS.c.domain_id,
    DOMAINS.c.domain,
    _kind.label("kind"),
    SITEMAPS.c.id.label("sitemap_id"),
    SITEMAPS.c.url.label("sitemap"),
    func.jsonb_build_object(
        literal("type"), SITEMAPS.c.type, literal("url_count"), SITEMAPS.c.url_count
    )
    .op("||", return_type=JSONB())(_data)
    .label("data"),
    case((SITEMAPS.c.vanished_at.is_not(None), SITEMAPS.c.last_complete_at)).label("not_before"),
    func.coalesce(SITEMAPS.c.vanished_at, SITEMAPS.c.last_complete_at).label("not_after"),
).join(DOMAINS, DOMAINS.c.id == SITEMAPS.c.domain_id)
_insert_document_events = insert(FEED_EVENTS).from_select(
    [column.name for column in _document_events.selected_columns],
    _document_events.where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid())))).order_by(
        SITEMAPS.c.url
    ),
)


async def add_document_events(
    session: AsyncSession,
    scan_id: int,
    kind: FeedEventKind,
    sitemap_ids: Sequence[UUID],
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write an event of this kind for each document."""
    if sitemap_ids:
        values = {"of_scan": scan_id, "its_kind": kind, "ids": list(sitemap_ids)}
        await session.execute(_insert_document_events, values | {"its_data": dict(data or {})})


# In one statement, for every first scan ends with it.
_insert_baselines = insert(FEED_EVENTS).from_select(
    [column.name for column in _document_events.selected_columns],
    _document_events.join(SITEMAP_SCANS, SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id)
    .where(SITEMAP_SCANS.c.scan_id == _scan, SITEMAP_SCANS.c.state.in_(DONE))
    .order_by(SITEMAPS.c.url),
)


async def add_baselines(session: AsyncSession, scan_id: int) -> None:
    """Write `baseline` for each document that a scan has read completely or that is unchanged."""
    values = {"of_scan": scan_id, "its_kind": FeedEventKind.BASELINE, "its_data": {}}
    await session.execute(_insert_baselines, values)


_domain_event = select(
    _scan.label("scan_id"),
    DOMAINS.c.id.label("domain_id"),
    DOMAINS.c.domain,
    _kind.label("kind"),
    _data.label("data"),
    func.now().label("not_after"),
).where(DOMAINS.c.id == _domain)
_insert_domain_event = insert(FEED_EVENTS).from_select(
    [column.name for column in _domain_event.selected_columns], _domain_event
)


async def add_domain_event(
    session: AsyncSession,
    scan_id: int,
    domain_id: UUID,
    kind: FeedEventKind,
    data: Mapping[str, Any],
) -> None:
    """Write an event of a site."""
    values = {"of_scan": scan_id, "of_domain": domain_id, "its_kind": kind, "its_data": dict(data)}
    await session.execute(_insert_domain_event, values)
