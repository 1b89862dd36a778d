"""Read statements behind webhook messages: which one follows a position, and what it tells.

A number of the feed has at most one message of each type, in the order of `RANKS`. A published scan
has one, and one more each for held removals and for a robots.txt that changed. How a message looks
is up to `siteatlas.notify`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    Select,
    SmallInteger,
    case,
    literal,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, aliased

from siteatlas.insights.change_views import ChangeView
from siteatlas.insights.changes import read_changes
from siteatlas.insights.feed_positions import FeedHeadView, FeedPosition, read_head
from siteatlas.insights.feed_windows import URL_KINDS, FeedFilter
from siteatlas.storage.models import (
    Domain,
    FeedEvent,
    FeedEventKind,
    MessageType,
    Scan,
    ScanState,
)
from siteatlas.storage.statements.webhooks import LAST_RANK

RANKS = {
    MessageType.SCAN_PUBLISHED: 0,
    MessageType.SCAN_FAILED: 0,
    MessageType.REMOVALS_HELD: 1,
    MessageType.ROBOTS_CHANGED: 2,
}
EVENTS_OF_SCANS = {
    MessageType.REMOVALS_HELD: FeedEventKind.REMOVALS_HELD,
    MessageType.ROBOTS_CHANGED: FeedEventKind.ROBOTS_CHANGED,
}
# One step passes at most as many numbers of the feed, each of which is a scan or an event.
MAX_NUMBERS = 1_000
# Read in one go, since a burst of publications has a message for each of them.
MAX_PLACES = 50
MAX_SAMPLES = 20
MAX_EVENTS = 20


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages an endpoint gets, and up to which one it has them; no domains means all."""

    types: Collection[str]
    domains: Collection[str] | None
    position: int
    rank: int


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message is in the feed."""

    seq: int
    rank: int
    type: MessageType


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The next messages of an endpoint; without any, there is none up to the number `upper`."""

    places: list[MessagePlace]
    upper: int


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What a message tells: of a published scan with `samples`, of other types with `events`.

    Samples are changes of URLs.

    `previous_seq` is the number of the published scan of the site before this number.
    """

    place: MessagePlace
    domain: str
    at: datetime
    scan_id: int | None
    previous_seq: int | None
    scan: Scan | None
    samples: list[ChangeView]
    events: list[dict[str, Any]]


async def next_messages(
    session: AsyncSession, wanted: MessageFilter, head: FeedHeadView
) -> Upcoming:
    """The messages behind a position, in the order of the feed; some of them if there are many.

    Numbers that are no longer retained are passed.
    """
    if wanted.position < head.retained_from:
        wanted = replace(wanted, position=head.retained_from, rank=LAST_RANK)
    upper = min(wanted.position + MAX_NUMBERS, head.seq)
    sources = [source.subquery() for source in _sources(wanted, upper)]
    together = union_all(*(select(source) for source in sources)).subquery("together")
    first = select(together).order_by(together.c.number, together.c.rank).limit(MAX_PLACES)
    rows = (await session.execute(first)).all()
    places = [MessagePlace(row.number, row.rank, MessageType(row.type)) for row in rows]
    return Upcoming(places, upper)


def _sources(wanted: MessageFilter, upper: int) -> Iterator[Select[*tuple[Any, ...]]]:
    """The first messages behind the position, from each table that has some for the endpoint."""
    types = set(wanted.types)
    events = [kind for kind in EVENTS_OF_SCANS if kind in types]
    if MessageType.SCAN_PUBLISHED in types:
        kind = MessageType.SCAN_PUBLISHED
        yield _first(_scans(literal(kind.value), _rank(kind), wanted, upper))
    if events:
        yield _first(_events_of_scans(events, wanted, upper))
    if MessageType.SCAN_FAILED in types:
        yield _first(_failures(wanted, upper))


def _rank(kind: MessageType) -> ColumnElement[int]:
    """The rank of a type of message as an SQL literal."""
    return literal(RANKS[kind], SmallInteger())


def _first(messages: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """The first messages of a source, in the order of the feed."""
    number, rank = messages.selected_columns["number"], messages.selected_columns["rank"]
    return messages.order_by(number, rank).limit(MAX_PLACES)


def _scans(
    kind: ColumnElement[str], rank: ColumnElement[int], wanted: MessageFilter, upper: int
) -> Select[*tuple[Any, ...]]:
    """The published scans behind the position, of the endpoint's sites."""
    number = Scan.published_seq
    statement = (
        select(number.label("number"), rank.label("rank"), kind.label("type"))
        .join(Domain, Domain.id == Scan.domain_id)
        .where(
            number >= wanted.position,
            number <= upper,
            tuple_(number, rank) > tuple_(literal(wanted.position), literal(wanted.rank)),
            Domain.deleted_at.is_(None),
        )
    )
    if wanted.domains is not None:
        statement = statement.where(Domain.domain.in_(wanted.domains))
    return statement


def _events_of_scans(
    types: Collection[MessageType], wanted: MessageFilter, upper: int
) -> Select[*tuple[Any, ...]]:
    """The events of published scans that have messages of their own.

    Several events of one kind are one message. They are one row before a limit is applied:
    otherwise this source would end before the others, and its next messages would be passed.
    """
    kinds = {EVENTS_OF_SCANS[kind]: kind for kind in types}
    type_ = case({kind.value: word.value for kind, word in kinds.items()}, value=FeedEvent.kind)
    rank = case(
        {kind.value: _rank(word) for kind, word in kinds.items()},
        value=FeedEvent.kind,
    )
    return (
        _scans(type_, rank, wanted, upper)
        .join(FeedEvent, FeedEvent.scan_id == Scan.id)
        .where(FeedEvent.seq.is_(None), FeedEvent.kind.in_(list(kinds)))
        .distinct()
    )


def _failures(wanted: MessageFilter, upper: int) -> Select[*tuple[Any, ...]]:
    """The failed scans behind the position, which have numbers of their own."""
    kind = MessageType.SCAN_FAILED
    statement = select(
        FeedEvent.seq.label("number"), _rank(kind).label("rank"), literal(kind.value).label("type")
    ).where(
        FeedEvent.kind == FeedEventKind.SCAN_FAILED,
        FeedEvent.seq > wanted.position,
        FeedEvent.seq <= upper,
    )
    if wanted.domains is not None:
        statement = statement.where(FeedEvent.domain.in_(wanted.domains))
    return statement


async def read_message(session: AsyncSession, place: MessagePlace) -> MessageFacts | None:
    """What a message tells; None if its site was removed meanwhile."""
    if place.type is MessageType.SCAN_FAILED:
        return await _read_failure(session, place)
    found = await session.execute(
        select(Scan, Domain.domain, _previous_seq(Scan.domain_id, place.seq))
        .join(Domain, Domain.id == Scan.domain_id)
        .where(Scan.published_seq == place.seq, Domain.deleted_at.is_(None))
    )
    row = found.one_or_none()
    if row is None:
        return None
    scan, domain, previous_seq = row
    is_of_scan = place.type is MessageType.SCAN_PUBLISHED
    return MessageFacts(
        place=place,
        domain=domain,
        at=scan.finished_at or scan.started_at,
        scan_id=scan.id,
        previous_seq=previous_seq,
        scan=scan,
        samples=await _samples(session, scan) if is_of_scan else [],
        events=[] if is_of_scan else await _events(session, scan, EVENTS_OF_SCANS[place.type]),
    )


async def _read_failure(session: AsyncSession, place: MessagePlace) -> MessageFacts | None:
    """What is told of a scan that failed; None if the event was removed meanwhile."""
    statement = select(FeedEvent, _previous_seq(FeedEvent.domain_id, place.seq)).where(
        FeedEvent.seq == place.seq, FeedEvent.kind == FeedEventKind.SCAN_FAILED
    )
    row = (await session.execute(statement)).first()
    if row is None:
        return None
    event, previous_seq = row
    return MessageFacts(
        place=place,
        domain=event.domain,
        at=event.created_at,
        scan_id=event.scan_id,
        previous_seq=previous_seq,
        scan=None,
        samples=[],
        events=[event.data],
    )


def _previous_seq(domain_id: InstrumentedAttribute[UUID], seq: int) -> ScalarSelect[int | None]:
    """The number of the published scan of a site before a number, as a subquery."""
    before = aliased(Scan)
    return (
        select(before.published_seq)
        .where(before.domain_id == domain_id, before.published_seq < seq)
        .where(before.state == ScanState.PUBLISHED)
        .order_by(before.published_seq.desc())
        .limit(1)
        .scalar_subquery()
    )


async def _samples(session: AsyncSession, scan: Scan) -> list[ChangeView]:
    """The first changes of URLs of a published scan; none if they are no longer retained."""
    if not scan.change_counts or scan.published_seq is None:
        return []
    head = await read_head(session)
    if scan.published_seq <= head.retained_from:
        return []
    upper, start = replace(head, seq=scan.published_seq), FeedPosition(scan.published_seq - 1)
    wanted = FeedFilter(scan.domain_id, URL_KINDS)
    return (await read_changes(session, wanted, upper, start, MAX_SAMPLES)).items


async def _events(session: AsyncSession, scan: Scan, kind: FeedEventKind) -> list[dict[str, Any]]:
    """The data of the events of a scan of one kind."""
    statement = (
        select(FeedEvent.data)
        .where(FeedEvent.scan_id == scan.id, FeedEvent.seq.is_(None), FeedEvent.kind == kind)
        .order_by(FeedEvent.id)
        .limit(MAX_EVENTS)
    )
    return list((await session.scalars(statement)).all())
