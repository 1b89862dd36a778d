"""Webhook endpoints: changed by users, claimed to send to, and shown. The caller owns transactions.

An endpoint has a position in the change feed: a number, and the rank of the last message within it.
`claim_endpoints` leases those that are behind; `next_messages` and `read_message` say what to send,
and `record_delivered` or `record_failed` moves the position, if the claim is still the last one.
Every change by a user takes a new fence, so that a process that is sending stops and another one
continues with the new values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Interval,
    ScalarSelect,
    Select,
    SmallInteger,
    Update,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, aliased

from siteatlas.catalog.change_feed import (
    URL_KINDS,
    ChangeView,
    FeedFilter,
    FeedHeadView,
    FeedPosition,
    read_changes,
    read_head,
)
from siteatlas.catalog.paging import CursorScope, Page, bigint_key, page_size, read_page, uuid_key
from siteatlas.catalog.urls import delete_rows
from siteatlas.catalog.views import (
    Count,
    Example,
    Line,
    Name,
    Seconds,
    Shown,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    one_of,
    select_view,
)
from siteatlas.errors import WebhookNotFound
from siteatlas.storage.models import (
    DisabledReason,
    Domain,
    FeedEvent,
    FeedEventKind,
    FeedHead,
    MessageType,
    Scan,
    ScanState,
    WebhookDelivery,
    WebhookEndpoint,
)
from siteatlas.storage.schema import FEED_HEAD, WEBHOOK_DELIVERIES, WEBHOOK_ENDPOINTS

STATUSES = ("active", "failing", "disabled")
FEED_TYPES = tuple(kind for kind in MessageType if kind is not MessageType.TEST)
MAX_DOMAINS = 1_000
# The highest rank of a message within a number: all messages of the number are done.
LAST_RANK = 9
# Longer than one attempt may take, with what is read and written around it.
LEASE = timedelta(seconds=30)
# One step passes at most as many numbers of the feed, each of which is a scan or an event.
MAX_NUMBERS = 1_000
# Read in one go, since a burst of publications has a message for each of them.
MAX_PLACES = 50
# Deliveries of an endpoint that are kept at most, however recent they are.
MAX_KEPT_DELIVERIES = 10_000
PRUNED_PER_CALL = 5_000

# In one message.
MAX_EVENTS = 20
RANKS = {
    MessageType.SCAN_PUBLISHED: 0,
    MessageType.SCAN_FAILED: 0,
    MessageType.REMOVALS_HELD: 1,
    MessageType.ROBOTS_CHANGED: 2,
    MessageType.FINDINGS_NEW: 3,
    MessageType.FINDINGS_RESOLVED: 4,
}
EVENTS_OF_SCANS = {
    MessageType.REMOVALS_HELD: FeedEventKind.REMOVALS_HELD,
    MessageType.ROBOTS_CHANGED: FeedEventKind.ROBOTS_CHANGED,
    MessageType.FINDINGS_NEW: FeedEventKind.FINDING_NEW,
    MessageType.FINDINGS_RESOLVED: FeedEventKind.FINDING_RESOLVED,
}
# Events with a number of their own.
NUMBERED_EVENTS = {
    MessageType.SCAN_FAILED: FeedEventKind.SCAN_FAILED,
    MessageType.FINDINGS_NEW: FeedEventKind.FINDING_NEW,
    MessageType.FINDINGS_RESOLVED: FeedEventKind.FINDING_RESOLVED,
}
# What an endpoint has when no attempt at its next message has failed.
_fresh = {"failures": 0, "failing_since": None, "next_attempt_at": None}

_endpoint = WEBHOOK_ENDPOINTS.c


async def insert_endpoint(
    session: AsyncSession,
    *,
    url: str,
    description: str,
    types: Sequence[str],
    domains: Sequence[str] | None,
    secret: str,
    created_by: UUID,
) -> UUID:
    """Store an endpoint whose position is the head of the feed; return its id."""
    statement = (
        insert(WEBHOOK_ENDPOINTS)
        .values(
            url=url,
            description=description,
            types=list(types),
            domains=None if domains is None else list(domains),
            secret=secret,
            created_by=created_by,
            position=select(FEED_HEAD.c.seq).scalar_subquery(),
            position_rank=LAST_RANK,
        )
        .returning(_endpoint.id)
    )
    ident: UUID = (await session.execute(statement)).scalar_one()
    return ident


async def change_endpoint(session: AsyncSession, endpoint_id: UUID, **values: Any) -> bool:
    """Set columns of an endpoint and try its next message at once; False if there is none."""
    return await _update_endpoint(session, endpoint_id, **_fresh, **values)


async def enable_endpoint(session: AsyncSession, endpoint_id: UUID) -> bool:
    """Deliver to an endpoint again, from its position."""
    return await _update_endpoint(
        session, endpoint_id, **_fresh, disabled_at=None, disabled_reason=None
    )


async def disable_endpoint(session: AsyncSession, endpoint_id: UUID) -> bool:
    """Stop delivering to an endpoint; it keeps its position."""
    disabled_at = func.coalesce(_endpoint.disabled_at, func.now())
    reason = DisabledReason.REQUESTED
    return await _update_endpoint(
        session, endpoint_id, disabled_at=disabled_at, disabled_reason=reason
    )


async def move_endpoint(session: AsyncSession, endpoint_id: UUID, after_seq: int) -> bool:
    """Continue an endpoint behind a number of the feed."""
    return await _update_endpoint(
        session, endpoint_id, **_fresh, position=after_seq, position_rank=LAST_RANK
    )


async def rotate_endpoint_secret(
    session: AsyncSession, endpoint_id: UUID, secret: str, *, overlap: timedelta
) -> bool:
    """Give an endpoint a new secret; messages are signed with the old one too for a while."""
    return await _update_endpoint(
        session,
        endpoint_id,
        secret=secret,
        previous_secret=_endpoint.secret,
        previous_secret_until=func.now() + overlap,
    )


async def delete_endpoint(session: AsyncSession, endpoint_id: UUID) -> bool:
    """Delete an endpoint with its deliveries; False if there is none with this id."""
    statement = delete(WEBHOOK_ENDPOINTS).where(_endpoint.id == endpoint_id)
    found = await session.execute(statement.returning(_endpoint.id))
    return found.scalar_one_or_none() is not None


async def _update_endpoint(session: AsyncSession, endpoint_id: UUID, **values: Any) -> bool:
    statement = (
        update(WEBHOOK_ENDPOINTS)
        .where(_endpoint.id == endpoint_id)
        .values(fence=_endpoint.fence + 1, lease_until=None, **values)
        .returning(_endpoint.id)
    )
    return (await session.execute(statement)).scalar_one_or_none() is not None


@dataclass(frozen=True, slots=True)
class ClaimedEndpoint:
    """An endpoint that this process sends to, and where it stands in the feed."""

    id: UUID
    url: str
    types: list[str]
    domains: list[str] | None
    position: int
    position_rank: int
    failures: int
    fence: int
    secret: str = field(repr=False)
    previous_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class SentMessage(View):
    """How the receiver answered a test message."""

    message_id: Annotated[Word, Example("msg_2f1c9d0b7a6e4c3d8b5a1e0f9c7d6b5a")]
    delivered: Annotated[bool, Example(True)]
    http_status: Annotated[SmallCount | None, Example(204)]
    error_code: Word | None
    seconds: Annotated[Seconds, Example(0.05)]


@dataclass(frozen=True, slots=True)
class NewDelivery(SentMessage):
    """One attempt to deliver a message, as it is stored."""

    type: str
    seq: int | None
    domain: str | None
    attempt: int


_claimed_columns = (
    _endpoint.id,
    _endpoint.url,
    _endpoint.types,
    _endpoint.domains,
    _endpoint.position,
    _endpoint.position_rank,
    _endpoint.failures,
    _endpoint.fence,
    _endpoint.secret,
    case((_endpoint.previous_secret_until > func.now(), _endpoint.previous_secret)),
)


async def claim_endpoints(session: AsyncSession, most: int) -> list[ClaimedEndpoint]:
    """Claim up to `most` endpoints that have something to be sent."""
    rows = await session.execute(_claim, {"most": most})
    return [ClaimedEndpoint(*row) for row in rows]


def _claim_statement() -> Any:
    due = (
        select(_endpoint.id)
        .where(
            _endpoint.disabled_at.is_(None),
            or_(_endpoint.lease_until.is_(None), _endpoint.lease_until <= func.now()),
            or_(_endpoint.next_attempt_at.is_(None), _endpoint.next_attempt_at <= func.now()),
            _is_behind(),
        )
        .order_by(_endpoint.lease_until.nulls_first())
        .limit(bindparam("most", type_=BigInteger()))
        .with_for_update(skip_locked=True)
        .cte("due")
    )
    return (
        update(WEBHOOK_ENDPOINTS)
        .where(_endpoint.id == due.c.id)
        .values(fence=_endpoint.fence + 1, lease_until=func.now() + LEASE)
        .returning(*_claimed_columns)
    )


def _is_behind() -> ColumnElement[bool]:
    head = select(FEED_HEAD.c.seq).scalar_subquery()
    return tuple_(_endpoint.position, _endpoint.position_rank) < tuple_(head, literal(LAST_RANK))


_claim = _claim_statement()
_any_enabled = select(select(_endpoint.id).where(_endpoint.disabled_at.is_(None)).exists())


async def any_endpoint_enabled(session: AsyncSession) -> bool:
    """Whether at least one endpoint is enabled."""
    return bool(await session.scalar(_any_enabled))


async def load_endpoint(session: AsyncSession, endpoint_id: UUID) -> ClaimedEndpoint | None:
    """An endpoint with its secrets, without claiming it; for a test message."""
    statement = select(*_claimed_columns).where(_endpoint.id == endpoint_id)
    row: Any = (await session.execute(statement)).one_or_none()
    return None if row is None else ClaimedEndpoint(*row)


async def renew_lease(session: AsyncSession, endpoint: ClaimedEndpoint) -> datetime | None:
    """Hold an endpoint for one more attempt; None if the claim is no longer valid.

    Returns the time of the database, from which the lease counts: not from the beginning of a
    transaction that may have waited.
    """
    now = func.clock_timestamp()
    statement = _update_of_claimed(endpoint, lease_until=now + LEASE).returning(now)
    held_at: datetime | None = (await session.execute(statement)).scalar_one_or_none()
    return held_at


async def record_delivered(
    session: AsyncSession,
    endpoint: ClaimedEndpoint,
    delivery: NewDelivery,
    rank: int,
    *,
    keep_lease: bool,
) -> bool:
    """Record a delivered message, and renew the lease or end it; False if the claim is invalid."""
    is_valid = await _update_claimed(
        session,
        endpoint,
        position=delivery.seq,
        position_rank=rank,
        **_fresh,
        last_attempt_at=func.now(),
        last_delivered_at=func.now(),
        lease_until=func.now() + (LEASE if keep_lease else timedelta(0)),
    )
    if is_valid:
        await _insert_delivery(session, endpoint.id, delivery)
    return is_valid


async def record_failed(
    session: AsyncSession,
    endpoint: ClaimedEndpoint,
    delivery: NewDelivery | None,
    rank: int,
    *,
    retry_seconds: float,
    disable: DisabledReason | None,
) -> bool:
    """Record a failed attempt and release the endpoint; False if the claim is no longer valid.

    The endpoint moves to just before the message that failed, so that `is_just_before` tells
    whether the failures are those of its next message. Without a delivery, it failed before its
    next message was known.
    """
    values: dict[str, Any] = {
        "failures": endpoint.failures + 1,
        "failing_since": _failing_since(endpoint),
        "next_attempt_at": func.now() + literal(timedelta(seconds=retry_seconds), Interval()),
        "last_attempt_at": func.now(),
        "lease_until": func.now(),
    }
    if disable is not None:
        values |= {"disabled_at": func.now(), "disabled_reason": disable}
    if delivery is not None and delivery.seq is not None:
        values["position"], values["position_rank"] = _place_before(delivery.seq, rank)
    is_valid = await _update_claimed(session, endpoint, **values)
    if is_valid and delivery is not None:
        await _insert_delivery(session, endpoint.id, delivery)
    return is_valid


def _failing_since(endpoint: ClaimedEndpoint) -> ColumnElement[Any]:
    if not endpoint.failures:
        return func.now()
    return func.coalesce(_endpoint.failing_since, func.now())


def is_just_before(endpoint: ClaimedEndpoint, seq: int, rank: int) -> bool:
    """Whether no other message can be between the position of an endpoint and this one."""
    return (endpoint.position, endpoint.position_rank) == _place_before(seq, rank)


def _place_before(seq: int, rank: int) -> tuple[int, int]:
    return (seq, rank - 1) if rank else (seq - 1, LAST_RANK)


async def pass_numbers(
    session: AsyncSession, endpoint: ClaimedEndpoint, seq: int, *, keep_lease: bool
) -> bool:
    """Move an endpoint behind numbers that have nothing for it; renew the lease or end it.

    If it has failures, they were at a message that is gone.
    """
    return await _update_claimed(
        session,
        endpoint,
        **_fresh,
        position=seq,
        position_rank=LAST_RANK,
        lease_until=func.now() + (LEASE if keep_lease else timedelta(0)),
    )


async def release_endpoints(session: AsyncSession, claimed: Sequence[ClaimedEndpoint]) -> None:
    """End claims, so that any process can continue at once."""
    for endpoint in claimed:
        await _update_claimed(session, endpoint, lease_until=func.now())


async def record_test(session: AsyncSession, endpoint_id: UUID, delivery: NewDelivery) -> bool:
    """Add a test message to the log of an endpoint; False if that was deleted meanwhile."""
    statement = select(_endpoint.id).where(_endpoint.id == endpoint_id)
    if await session.scalar(statement.with_for_update(read=True, key_share=True)) is None:
        return False
    await _insert_delivery(session, endpoint_id, delivery)
    return True


async def _insert_delivery(session: AsyncSession, endpoint_id: UUID, delivery: NewDelivery) -> None:
    values = {name: getattr(delivery, name) for name in delivery.__dataclass_fields__}
    await session.execute(insert(WEBHOOK_DELIVERIES), {"endpoint_id": endpoint_id, **values})


async def _update_claimed(session: AsyncSession, endpoint: ClaimedEndpoint, **values: Any) -> bool:
    statement = _update_of_claimed(endpoint, **values).returning(_endpoint.id)
    return (await session.execute(statement)).scalar_one_or_none() is not None


def _update_of_claimed(endpoint: ClaimedEndpoint, **values: Any) -> Update:
    of_claim = (_endpoint.id == endpoint.id, _endpoint.fence == endpoint.fence)
    return update(WEBHOOK_ENDPOINTS).where(*of_claim).values(**values)


async def prune_deliveries(session: AsyncSession, *, days: float) -> int:
    """Delete attempts that are older than the retention, or beyond the number that is kept."""
    old = WebhookDelivery.created_at < func.now() - timedelta(days=days)
    deleted = await delete_rows(session, WebhookDelivery, old, PRUNED_PER_CALL)
    return deleted or await _prune_surplus(session)


async def _prune_surplus(session: AsyncSession) -> int:
    oldest_kept = (
        select(WEBHOOK_DELIVERIES.c.id)
        .where(WEBHOOK_DELIVERIES.c.endpoint_id == _endpoint.id)
        .order_by(WEBHOOK_DELIVERIES.c.id.desc())
        .offset(MAX_KEPT_DELIVERIES - 1)
        .limit(1)
        .scalar_subquery()
    )
    deleted = 0
    for endpoint_id, oldest in (await session.execute(select(_endpoint.id, oldest_kept))).all():
        if oldest is not None:
            surplus = (WebhookDelivery.endpoint_id == endpoint_id) & (WebhookDelivery.id < oldest)
            deleted += await delete_rows(session, WebhookDelivery, surplus, PRUNED_PER_CALL)
    return deleted


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
    types = set(wanted.types)
    events = [kind for kind in EVENTS_OF_SCANS if kind in types]
    if MessageType.SCAN_PUBLISHED in types:
        kind = MessageType.SCAN_PUBLISHED
        yield _first(_scans(literal(kind.value), _rank(kind), wanted, upper))
    if events:
        yield _first(_events_of_scans(events, wanted, upper))
    if numbered := [kind for kind in NUMBERED_EVENTS if kind in types]:
        yield _first(_numbered_events(numbered, wanted, upper))


def _rank(kind: MessageType) -> ColumnElement[int]:
    return literal(RANKS[kind], SmallInteger())


def _first(messages: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    number, rank = messages.selected_columns["number"], messages.selected_columns["rank"]
    return messages.order_by(number, rank).limit(MAX_PLACES)


def _scans(
    kind: ColumnElement[str], rank: ColumnElement[int], wanted: MessageFilter, upper: int
) -> Select[*tuple[Any, ...]]:
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
    type_, rank = _type_and_rank(kinds)
    return (
        _scans(type_, rank, wanted, upper)
        .join(FeedEvent, FeedEvent.scan_id == Scan.id)
        .where(FeedEvent.seq.is_(None), FeedEvent.kind.in_(list(kinds)))
        .distinct()
    )


def _type_and_rank(kinds: dict[FeedEventKind, MessageType]) -> tuple[Any, Any]:
    types = {kind.value: word.value for kind, word in kinds.items()}
    ranks = {kind.value: _rank(word) for kind, word in kinds.items()}
    return case(types, value=FeedEvent.kind), case(ranks, value=FeedEvent.kind)


def _numbered_events(
    types: Collection[MessageType], wanted: MessageFilter, upper: int
) -> Select[*tuple[Any, ...]]:
    """Failed scans, and findings of all URLs, which follow the scan."""
    kinds = {NUMBERED_EVENTS[kind]: kind for kind in types}
    type_, rank = _type_and_rank(kinds)
    number = FeedEvent.seq
    statement = (
        select(number.label("number"), rank.label("rank"), type_.label("type"))
        .where(
            FeedEvent.kind.in_(list(kinds)),
            number >= wanted.position,
            number <= upper,
            tuple_(number, rank) > tuple_(literal(wanted.position), literal(wanted.rank)),
        )
        .distinct()
    )
    if wanted.domains is not None:
        statement = statement.where(FeedEvent.domain.in_(wanted.domains))
    return statement


async def read_message(session: AsyncSession, place: MessagePlace) -> MessageFacts | None:
    """What a message tells; None if its site was removed meanwhile."""
    if place.type is MessageType.SCAN_FAILED:
        return await _read_numbered(session, place)
    found = await session.execute(
        select(Scan, Domain.domain, _previous_seq(Scan.domain_id, place.seq))
        .join(Domain, Domain.id == Scan.domain_id)
        .where(Scan.published_seq == place.seq, Domain.deleted_at.is_(None))
    )
    row = found.one_or_none()
    if row is None:
        return await _read_numbered(session, place) if place.type in NUMBERED_EVENTS else None
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


async def _read_numbered(session: AsyncSession, place: MessagePlace) -> MessageFacts | None:
    statement = (
        select(FeedEvent, _previous_seq(FeedEvent.domain_id, place.seq))
        .where(FeedEvent.seq == place.seq, FeedEvent.kind == NUMBERED_EVENTS[place.type])
        .order_by(FeedEvent.id)
        .limit(MAX_EVENTS)
    )
    rows = (await session.execute(statement)).all()
    if not rows:
        return None
    event, previous_seq = rows[0]
    return MessageFacts(
        place=place,
        domain=event.domain,
        at=event.created_at,
        scan_id=event.scan_id,
        previous_seq=previous_seq,
        scan=None,
        samples=[],
        events=[{"sitemap": row[0].sitemap} | row[0].data for row in rows],
    )


def _previous_seq(domain_id: InstrumentedAttribute[UUID], seq: int) -> ScalarSelect[int | None]:
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
    if not scan.change_counts or scan.published_seq is None:
        return []
    head = await read_head(session)
    if scan.published_seq <= head.retained_from:
        return []
    upper, start = replace(head, seq=scan.published_seq), FeedPosition(scan.published_seq - 1)
    wanted = FeedFilter(scan.domain_id, URL_KINDS)
    return (await read_changes(session, wanted, upper, start, limit=20)).items


async def _events(session: AsyncSession, scan: Scan, kind: FeedEventKind) -> list[dict[str, Any]]:
    statement = (
        select(FeedEvent.sitemap, FeedEvent.data)
        .where(FeedEvent.scan_id == scan.id, FeedEvent.seq.is_(None), FeedEvent.kind == kind)
        .order_by(FeedEvent.id)
        .limit(MAX_EVENTS)
    )
    return [{"sitemap": row.sitemap} | row.data for row in await session.execute(statement)]


@dataclass(frozen=True, slots=True)
class WebhookView(View):
    """A webhook; never its secret."""

    id: Annotated[UUID, Example(Shown.webhook_id)]
    url: Annotated[Url, Example("https://hooks.example.com/siteatlas")]
    description: Annotated[Line, Example("search index")]
    types: Annotated[
        list[Annotated[str, one_of(FEED_TYPES)]],
        declared(maxItems=len(FEED_TYPES)),
        Example(["scan.published"]),
    ]
    domains: Annotated[
        Annotated[list[Name], declared(maxItems=MAX_DOMAINS)] | None,
        Field(description="Only about these sites; null for all."),
    ]
    status: Annotated[str, one_of(STATUSES), Example("active")]
    disabled_reason: Annotated[
        Annotated[DisabledReason, one_of(DisabledReason)] | None,
        Field(
            description="`failing`: all attempts at a message failed, for three days. `gone`: the "
            "receiver answered 410. `requested`: a user disabled it."
        ),
    ]
    delivered_seq: Annotated[
        Count,
        Example(7),
        Field(
            description="All messages about numbers of the change feed up to this one are "
            "delivered."
        ),
    ]
    head_seq: Annotated[Count, Example(7), Field(description="The last number of the change feed.")]
    failures: Annotated[
        SmallCount, Example(0), Field(description="Failed attempts at the next message.")
    ]
    failing_since: datetime | None
    next_attempt_at: datetime | None
    last_attempt_at: Annotated[datetime | None, Example(Shown.later)]
    last_delivered_at: Annotated[datetime | None, Example(Shown.later)]
    disabled_at: datetime | None
    previous_secret_until: Annotated[
        datetime | None,
        Field(
            description="Until then messages are also signed with the secret before the last "
            "rotation."
        ),
    ]
    created_by: Annotated[UUID, Example(Shown.user_id)]
    created_at: Annotated[datetime, Example(Shown.noon)]


@dataclass(frozen=True, slots=True)
class DeliveryView(SentMessage):
    """One attempt to deliver a message."""

    id: Annotated[Count, Example(1)]
    type: Annotated[MessageType, one_of(MessageType), Example("scan.published")]
    seq: Annotated[Count | None, Example(7), Field(description="Number of the change feed.")]
    domain: Annotated[Name | None, Example("example.com")]
    attempt: Annotated[
        SmallCount, Example(1), Field(description="1 for the first attempt at this message.")
    ]
    created_at: Annotated[datetime, Example(Shown.noon)]


@dataclass(frozen=True, slots=True)
class WebhookLoad:
    """The number of endpoints by status, and how many numbers the slowest active one is behind."""

    endpoints: dict[str, int]
    behind: int


_status = case(
    (WebhookEndpoint.disabled_at.is_not(None), "disabled"),
    (WebhookEndpoint.failures > 0, "failing"),
    else_="active",
)
_delivered_seq = case(
    (WebhookEndpoint.position_rank == LAST_RANK, WebhookEndpoint.position),
    else_=WebhookEndpoint.position - 1,
)
_select_webhooks = select_view(
    WebhookView,
    WebhookEndpoint,
    # Many receivers have the secret in their path or query.
    url=func.regexp_replace(WebhookEndpoint.url, r"^([^/]+//[^/]+/).+$", r"\1…"),
    status=_status,
    delivered_seq=_delivered_seq,
    head_seq=select(FeedHead.seq).scalar_subquery(),
    previous_secret_until=case(
        (
            WebhookEndpoint.previous_secret_until > func.now(),
            WebhookEndpoint.previous_secret_until,
        )
    ),
)


async def list_webhooks(
    session: AsyncSession, *, limit: int | None = None, cursor: str | None = None
) -> Page[WebhookView]:
    """All endpoints by id, including disabled ones."""
    scope = CursorScope("webhooks")
    after = scope.read(cursor, uuid_key)
    found = (
        _select_webhooks if after is None else _select_webhooks.where(WebhookEndpoint.id > after)
    )
    return await read_page(
        session,
        found.order_by(WebhookEndpoint.id),
        page_size(limit),
        WebhookView,
        lambda row: scope.write(row.id),
    )


async def count_webhooks(session: AsyncSession) -> int:
    """The number of endpoints."""
    return int(await session.scalar(select(func.count()).select_from(WebhookEndpoint)) or 0)


async def find_webhook(session: AsyncSession, endpoint_id: UUID) -> WebhookView:
    """The endpoint with this id; WebhookNotFound if there is none."""
    found = await session.execute(_select_webhooks.where(WebhookEndpoint.id == endpoint_id))
    row = found.one_or_none()
    if row is None:
        raise WebhookNotFound
    return WebhookView(*row)


async def list_deliveries(
    session: AsyncSession,
    endpoint_id: UUID,
    *,
    delivered: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[DeliveryView]:
    """The attempts of an endpoint, newest first; WebhookNotFound if there is no such endpoint."""
    await find_webhook(session, endpoint_id)
    scope = CursorScope("deliveries", (endpoint_id, delivered))
    before = scope.read(cursor, bigint_key)
    statement = select_view(DeliveryView, WebhookDelivery).where(
        WebhookDelivery.endpoint_id == endpoint_id
    )
    if delivered is not None:
        statement = statement.where(WebhookDelivery.delivered.is_(delivered))
    if before is not None:
        statement = statement.where(WebhookDelivery.id < before)
    return await read_page(
        session,
        statement.order_by(WebhookDelivery.id.desc()),
        page_size(limit),
        DeliveryView,
        lambda row: scope.write(row.id),
    )


async def find_failure(session: AsyncSession, webhook: WebhookView) -> DeliveryView | None:
    """The last failed attempt of a webhook that is failing; test messages do not count."""
    if webhook.failing_since is None:
        return None
    statement = select_view(DeliveryView, WebhookDelivery).where(
        WebhookDelivery.endpoint_id == webhook.id,
        WebhookDelivery.type != MessageType.TEST,
        WebhookDelivery.delivered.is_(False),
        WebhookDelivery.created_at >= webhook.failing_since,
    )
    newest = await session.execute(statement.order_by(WebhookDelivery.id.desc()).limit(1))
    row = newest.one_or_none()
    return None if row is None else DeliveryView(*row)


async def webhook_load(session: AsyncSession) -> WebhookLoad:
    """The state of all endpoints in a few numbers, for metrics."""
    head = select(FeedHead.seq).scalar_subquery()
    counted = select(_status.label("status"), func.count(), func.min(_delivered_seq), head)
    rows = (await session.execute(counted.group_by(_status))).all()
    behind = [head - oldest for status, _, oldest, head in rows if status != "disabled"]
    counts = {status: count for status, count, *_ in rows}
    return WebhookLoad({word: counts.get(word, 0) for word in STATUSES}, max(behind, default=0))
