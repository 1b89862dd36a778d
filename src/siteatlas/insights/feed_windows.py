"""The statements that read a window of the change feed: a bounded number of rows in its order.

Three sources are put together: events of scans, events with a number of their own, and changes of
URLs. Each of them reads at most as many rows as the window has, through an index and in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Select,
    Subquery,
    Text,
    Uuid,
    func,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import aliased
from sqlalchemy.types import TypeEngine

from siteatlas.insights.feed_positions import FeedPosition
from siteatlas.storage.models import (
    ChangeKind,
    Domain,
    FeedEvent,
    FeedEventKind,
    Scan,
    Sitemap,
    UrlChange,
)
from siteatlas.storage.tables import FEED_EVENTS

URL_KINDS = frozenset(kind.value for kind in ChangeKind)
EVENT_KINDS = frozenset(kind.value for kind in FeedEventKind)
# Events of a number come before the changes of URLs.
OF_EVENT, OF_URL = 0, 1
ORDER = ("number", "part", "event_id", "sitemap_id", "url_hash")
# The columns that all sources have, in this order; null where a source has no value.
COLUMNS: dict[str, TypeEngine[Any]] = {
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


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """Which events to show: of one site or of all, of some kinds or of all."""

    domain_id: UUID | None = None
    kinds: frozenset[str] | None = None

    @property
    def shows_events(self) -> bool:
        """Whether events of documents and domains can match."""
        return self.kinds is None or not self.kinds.isdisjoint(EVENT_KINDS)

    @property
    def shows_urls(self) -> bool:
        """Whether changes of URLs can match."""
        return self.kinds is None or not self.kinds.isdisjoint(URL_KINDS)


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
    def has_events(self) -> bool:
        """Whether events of documents and domains can be among its rows."""
        return self.wanted.shows_events and self.start.entry is None

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows because none of the wanted kinds can follow in its number."""
        return not (self.has_events or self.wanted.shows_urls)


def number_at(wanted: FeedFilter, done: int, upper: int, place: int) -> Select[Any]:
    """The number of the scan at this place behind `done`; no row if there are fewer."""
    numbers = _published_scans(wanted, done, upper).with_only_columns(Scan.published_seq)
    return numbers.order_by(Scan.published_seq).offset(place - 1).limit(1)


def hits_and_last(window: FeedWindow) -> Select[Any]:
    """The rows of a window that match the kinds, and always its last one, as the next start."""
    examined, kinds = _examined_rows(window), window.wanted.kinds
    place = func.row_number().over(order_by=[examined.c[name] for name in ORDER])
    hit = true() if kinds is None else examined.c.kind.in_(sorted(kinds))
    marked = select(
        *examined.c, hit.label("hit"), place.label("place"), func.count().over().label("rows")
    ).subquery("marked")
    sitemap, previous = aliased(Sitemap), aliased(Sitemap)
    return (
        select(
            *marked.c,
            func.coalesce(marked.c.sitemap_url, sitemap.url).label("sitemap"),
            previous.url.label("previous_sitemap"),
        )
        .outerjoin(sitemap, sitemap.id == marked.c.sitemap_id)
        .outerjoin(previous, previous.id == marked.c.previous_sitemap_id)
        .where(or_(marked.c.hit, marked.c.place == marked.c.rows))
        .order_by(marked.c.place)
    )


def position_of(row: Any) -> FeedPosition:
    """The position behind one row of the feed."""
    if row.part == OF_URL:
        return FeedPosition(row.number - 1, entry=(row.sitemap_id, row.url_hash))
    return FeedPosition(row.number - 1, event_id=row.event_id)


def _examined_rows(window: FeedWindow) -> Subquery:
    """The rows of a window from all sources, in the order of the feed."""
    sources: list[Select[Any]] = []
    if window.has_events:
        sources += [_events_of_scans(window), _numbered_events(window)]
    if window.wanted.shows_urls:
        sources.append(_changes_of_scans(window))
    together = union_all(*(select(source.subquery()) for source in sources)).subquery("together")
    order = [together.c[name] for name in ORDER]
    return select(together).order_by(*order).limit(window.rows).subquery("examined")


def _published_scans(wanted: FeedFilter, done: int, upper: int) -> Select[Any]:
    """The scans with a number behind `done` and up to `upper`."""
    statement = select(Scan.id).where(Scan.published_seq > done, Scan.published_seq <= upper)
    if wanted.domain_id is not None:
        statement = statement.where(Scan.domain_id == wanted.domain_id)
    return statement


def _numbers(window: FeedWindow) -> Subquery:
    """The scans of a window with the names of their sites; those of deleted sites are left out."""
    scans = _published_scans(window.wanted, window.start.done, window.upper)
    named = scans.with_only_columns(
        Scan.id.label("scan_id"), Scan.published_seq.label("number"), Domain.domain
    )
    kept = named.join(Domain, Domain.id == Scan.domain_id).where(Domain.deleted_at.is_(None))
    return kept.subquery("numbers")


def _events_of_scans(window: FeedWindow) -> Select[Any]:
    """The events of documents and domains that belong to published scans."""
    numbers = _numbers(window)
    events = (
        select(FeedEvent)
        .where(FeedEvent.scan_id == numbers.c.scan_id, FeedEvent.seq.is_(None))
        .where(_behind_event(window.start))
        .order_by(FeedEvent.id)
        .limit(window.rows)
        .lateral("events")
    )
    found = _event_columns(events.c, numbers.c.number, numbers.c.domain)
    rows = found.select_from(numbers).join(events, true())
    return rows.order_by(numbers.c.number, events.c.id).limit(window.rows)


def _numbered_events(window: FeedWindow) -> Select[Any]:
    """The events with a number of their own, such as that of a deleted site."""
    columns = FEED_EVENTS.c
    of_window = (columns.seq > window.start.done, columns.seq <= window.upper)
    found = _event_columns(columns, columns.seq, columns.domain)
    rows = found.where(*of_window, _behind_event(window.start))
    if window.wanted.domain_id is not None:
        rows = rows.where(columns.domain_id == window.wanted.domain_id)
    return rows.order_by(columns.seq, columns.id).limit(window.rows)


def _behind_event(start: FeedPosition) -> ColumnElement[bool]:
    """SQL condition: an event is behind a position inside the events of its number."""
    return true() if start.event_id is None else FEED_EVENTS.c.id > start.event_id


def _event_columns(events: Any, number: Any, domain: Any) -> Select[Any]:
    """The columns of the feed for events of documents and domains."""
    return _feed_columns(
        number=number,
        part=literal(OF_EVENT),
        event_id=events.id,
        sitemap_id=events.sitemap_id,
        domain=domain,
        kind=events.kind,
        sitemap_url=events.sitemap,
        scan_id=events.scan_id,
        not_before=events.not_before,
        not_after=events.not_after,
        data=events.data,
    )


def _changes_of_scans(window: FeedWindow) -> Select[Any]:
    """The changes of URLs of published scans."""
    numbers = _numbers(window)
    of_scan = select(UrlChange).where(UrlChange.scan_id == numbers.c.scan_id)
    if window.start.entry is not None:
        place = tuple_(UrlChange.sitemap_id, UrlChange.url_hash)
        of_scan = of_scan.where(place > tuple_(*map(literal, window.start.entry)))
    order = (UrlChange.sitemap_id, UrlChange.url_hash)
    changes = of_scan.order_by(*order).limit(window.rows).lateral("changes")
    shown = {name: changes.c[name] for name in COLUMNS if name in changes.c}
    found = _feed_columns(
        number=numbers.c.number, part=literal(OF_URL), domain=numbers.c.domain, **shown
    )
    rows = found.select_from(numbers).join(changes, true())
    return rows.order_by(numbers.c.number, changes.c.sitemap_id, changes.c.url_hash).limit(
        window.rows
    )


def _feed_columns(**given: Any) -> Select[Any]:
    """All columns of the feed; null for those that a source does not have."""
    columns: list[ColumnElement[Any]] = [
        (type_coerce(given[name], type_) if name in given else null().cast(type_)).label(name)
        for name, type_ in COLUMNS.items()
    ]
    return select(*columns)
