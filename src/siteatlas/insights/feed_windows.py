"""The statements that read a window of the change feed: a bounded number of rows in its order.

Three sources are put together: events of scans, events with a number of their own, and changes of
URLs. Each of them reads at most as many rows as the window has, through an index and in order.
The statement of each shape of window is made once: making it takes longer than running it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    DateTime,
    Select,
    Subquery,
    Text,
    Uuid,
    bindparam,
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
from sqlalchemy.types import TypeEngine

from siteatlas.insights.feed_positions import FeedPosition
from siteatlas.insights.tagged_domains import tagged_domains
from siteatlas.storage.models import ChangeKind, FeedEventKind, Scan
from siteatlas.storage.tables import DOMAINS, FEED_EVENTS, SCANS, SITEMAPS, URL_CHANGES

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
DONE = bindparam("done", type_=BigInteger())
UPPER = bindparam("upper", type_=BigInteger())
ROWS = bindparam("rows", type_=BigInteger())
OF_DOMAIN = bindparam("of_domain", type_=Uuid())
OF_TAG = bindparam("of_tag", type_=Text())


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


@cache
def hits_and_last(shape: WindowShape) -> Select[Any]:
    """The rows of a window that match the kinds, and always its last one, as the next start."""
    examined = _examined_rows(shape)
    place = func.row_number().over(order_by=[examined.c[name] for name in ORDER])
    wanted: BindParameter[Any] = bindparam("of_kinds", expanding=True)
    hit = examined.c.kind.in_(wanted) if shape.of_kinds else true()
    marked = select(
        *examined.c, hit.label("hit"), place.label("place"), func.count().over().label("rows")
    ).subquery("marked")
    sitemap, previous = SITEMAPS.alias("sitemap"), SITEMAPS.alias("previous")
    return (
        select(
            *marked.c,
            func.coalesce(marked.c.sitemap_url, sitemap.c.url).label("sitemap"),
            previous.c.url.label("previous_sitemap"),
        )
        .outerjoin(sitemap, sitemap.c.id == marked.c.sitemap_id)
        .outerjoin(previous, previous.c.id == marked.c.previous_sitemap_id)
        .where(or_(marked.c.hit, marked.c.place == marked.c.rows))
        .order_by(marked.c.place)
    )


def position_of(row: Any) -> FeedPosition:
    """The position behind one row of the feed."""
    if row.part == OF_URL:
        return FeedPosition(row.number - 1, entry=(row.sitemap_id, row.url_hash))
    return FeedPosition(row.number - 1, event_id=row.event_id)


def _examined_rows(shape: WindowShape) -> Subquery:
    """The rows of a window from all sources, in the order of the feed."""
    sources: list[Select[Any]] = []
    if shape.has_events:
        sources += [_events_of_scans(shape), _numbered_events(shape)]
    if shape.has_urls:
        sources.append(_changes_of_scans(shape))
    together = union_all(*(select(source.subquery()) for source in sources)).subquery("together")
    order = [together.c[name] for name in ORDER]
    return select(together).order_by(*order).limit(ROWS).subquery("examined")


def _numbers(shape: WindowShape) -> Subquery:
    """The scans of a window with the names of their sites; those of deleted sites are left out."""
    number = SCANS.c.published_seq
    scans = (
        select(SCANS.c.id.label("scan_id"), number.label("number"), DOMAINS.c.domain)
        .join(DOMAINS, DOMAINS.c.id == SCANS.c.domain_id)
        .where(number > DONE, number <= UPPER, DOMAINS.c.deleted_at.is_(None))
    )
    if shape.of_domain:
        scans = scans.where(SCANS.c.domain_id == OF_DOMAIN)
    if shape.of_tag:
        scans = scans.where(SCANS.c.domain_id.in_(tagged_domains(OF_TAG)))
    return scans.subquery("numbers")


def _events_of_scans(shape: WindowShape) -> Select[Any]:
    """The events of documents and domains that belong to published scans."""
    numbers, columns = _numbers(shape), FEED_EVENTS.c
    of_scan = select(FEED_EVENTS).where(columns.scan_id == numbers.c.scan_id, columns.seq.is_(None))
    events = _behind_event(of_scan, shape).order_by(columns.id).limit(ROWS).lateral("events")
    found = _event_columns(events.c, numbers.c.number, numbers.c.domain)
    rows = found.select_from(numbers).join(events, true())
    return rows.order_by(numbers.c.number, events.c.id).limit(ROWS)


def _numbered_events(shape: WindowShape) -> Select[Any]:
    """The events with a number of their own, such as that of a deleted site."""
    columns = FEED_EVENTS.c
    rows = _event_columns(columns, columns.seq, columns.domain)
    rows = _behind_event(rows.where(columns.seq > DONE, columns.seq <= UPPER), shape)
    if shape.of_domain:
        rows = rows.where(columns.domain_id == OF_DOMAIN)
    if shape.of_tag:
        rows = rows.where(columns.domain_id.in_(tagged_domains(OF_TAG)))
    return rows.order_by(columns.seq, columns.id).limit(ROWS)


def _behind_event(events: Select[Any], shape: WindowShape) -> Select[Any]:
    """Only the events behind the position, if that is inside the events of a number."""
    behind = FEED_EVENTS.c.id > bindparam("behind_event", type_=BigInteger())
    return events.where(behind) if shape.behind_event else events


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


def _changes_of_scans(shape: WindowShape) -> Select[Any]:
    """The changes of URLs of published scans."""
    numbers, columns = _numbers(shape), URL_CHANGES.c
    of_scan = select(URL_CHANGES).where(columns.scan_id == numbers.c.scan_id)
    if shape.behind_entry:
        behind = tuple_(
            bindparam("behind_sitemap", type_=Uuid()), bindparam("behind_hash", type_=BigInteger())
        )
        of_scan = of_scan.where(tuple_(columns.sitemap_id, columns.url_hash) > behind)
    ordered = of_scan.order_by(columns.sitemap_id, columns.url_hash)
    changes = ordered.limit(ROWS).lateral("changes")
    shown = {name: changes.c[name] for name in COLUMNS if name in changes.c}
    found = _feed_columns(
        number=numbers.c.number, part=literal(OF_URL), domain=numbers.c.domain, **shown
    )
    rows = found.select_from(numbers).join(changes, true())
    order = (numbers.c.number, changes.c.sitemap_id, changes.c.url_hash)
    return rows.order_by(*order).limit(ROWS)


def _feed_columns(**given: Any) -> Select[Any]:
    """All columns of the feed; null for those that a source does not have."""
    columns: list[ColumnElement[Any]] = [
        (type_coerce(given[name], type_) if name in given else null().cast(type_)).label(name)
        for name, type_ in COLUMNS.items()
    ]
    return select(*columns)
