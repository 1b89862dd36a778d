"""Statements behind deliveries: claim an endpoint, record an attempt, release, prune the log.

A claim holds until its lease ends, so an endpoint whose process died is claimed by another one. A
lease that was returned ends at that moment: the endpoint that has waited longest is claimed first.
Each result is written under the fence of its claim: none is recorded after the endpoint was claimed
again or changed. The caller owns the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Interval,
    bindparam,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import DisabledReason, WebhookDelivery
from siteatlas.storage.statements.bulk import delete_rows
from siteatlas.storage.statements.webhooks import FRESH, LAST_RANK
from siteatlas.storage.tables import FEED_HEAD, WEBHOOK_DELIVERIES, WEBHOOK_ENDPOINTS

# Longer than one attempt may take, with what is read and written around it.
LEASE = timedelta(seconds=30)
NO_TIME = timedelta(0)
PRUNED_PER_CALL = 5_000
# Deliveries of an endpoint that are kept at most, however recent they are.
MAX_KEPT_DELIVERIES = 10_000

_COLUMNS = WEBHOOK_ENDPOINTS.c


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
class NewDelivery:
    """One attempt to deliver a message, as the log shows it."""

    message_id: str
    type: str
    seq: int | None
    domain: str | None
    attempt: int
    delivered: bool
    http_status: int | None
    error_code: str | None
    seconds: float


SECRETS = (
    _COLUMNS.secret,
    case((_COLUMNS.previous_secret_until > func.now(), _COLUMNS.previous_secret)),
)
CLAIMED = (
    _COLUMNS.id,
    _COLUMNS.url,
    _COLUMNS.types,
    _COLUMNS.domains,
    _COLUMNS.position,
    _COLUMNS.position_rank,
    _COLUMNS.failures,
    _COLUMNS.fence,
    *SECRETS,
)


def _is_behind() -> ColumnElement[bool]:
    """SQL condition: there may be messages between the position of an endpoint and the head."""
    head = select(FEED_HEAD.c.seq).scalar_subquery()
    return tuple_(_COLUMNS.position, _COLUMNS.position_rank) < tuple_(head, literal(LAST_RANK))


def _claim_statement() -> Any:
    """Claim endpoints that have something to be sent; the one that waited longest comes first."""
    due = (
        select(_COLUMNS.id)
        .where(
            _COLUMNS.disabled_at.is_(None),
            or_(_COLUMNS.lease_until.is_(None), _COLUMNS.lease_until <= func.now()),
            or_(_COLUMNS.next_attempt_at.is_(None), _COLUMNS.next_attempt_at <= func.now()),
            _is_behind(),
        )
        .order_by(_COLUMNS.lease_until.nulls_first())
        .limit(bindparam("most", type_=BigInteger()))
        .with_for_update(skip_locked=True)
        .cte("due")
    )
    return (
        update(WEBHOOK_ENDPOINTS)
        .where(_COLUMNS.id == due.c.id)
        .values(fence=_COLUMNS.fence + 1, lease_until=func.now() + LEASE)
        .returning(*CLAIMED)
    )


CLAIM = _claim_statement()
ANY_ENABLED = select(select(_COLUMNS.id).where(_COLUMNS.disabled_at.is_(None)).exists())


async def claim_endpoints(session: AsyncSession, most: int) -> list[ClaimedEndpoint]:
    """Claim up to `most` endpoints that have something to be sent."""
    rows = await session.execute(CLAIM, {"most": most})
    return [ClaimedEndpoint(*row) for row in rows]


async def any_endpoint_enabled(session: AsyncSession) -> bool:
    """Whether at least one endpoint is enabled."""
    return bool(await session.scalar(ANY_ENABLED))


async def load_endpoint(session: AsyncSession, endpoint_id: UUID) -> ClaimedEndpoint | None:
    """An endpoint with its secrets, without claiming it; for a test message."""
    statement = select(*CLAIMED).where(_COLUMNS.id == endpoint_id)
    row: Any = (await session.execute(statement)).one_or_none()
    return None if row is None else ClaimedEndpoint(*row)


async def renew_lease(session: AsyncSession, endpoint: ClaimedEndpoint) -> bool:
    """Hold an endpoint for one more attempt; False if the claim is no longer valid.

    The lease counts from now, not from the beginning of a transaction that may have waited.
    """
    return await _update_claimed(session, endpoint, lease_until=func.clock_timestamp() + LEASE)


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
        **FRESH,
        last_attempt_at=func.now(),
        last_delivered_at=func.now(),
        lease_until=func.now() + (LEASE if keep_lease else NO_TIME),
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
    """SQL expression: when the first of the failures was, of which there is now one more."""
    if not endpoint.failures:
        return func.now()
    return func.coalesce(_COLUMNS.failing_since, func.now())


def is_just_before(endpoint: ClaimedEndpoint, seq: int, rank: int) -> bool:
    """Whether no other message can be between the position of an endpoint and this one."""
    return (endpoint.position, endpoint.position_rank) == _place_before(seq, rank)


def _place_before(seq: int, rank: int) -> tuple[int, int]:
    """The last position before a message, as a number and a rank."""
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
        **FRESH,
        position=seq,
        position_rank=LAST_RANK,
        lease_until=func.now() + (LEASE if keep_lease else NO_TIME),
    )


async def release_endpoints(session: AsyncSession, claimed: Sequence[ClaimedEndpoint]) -> None:
    """End claims, so that any process can continue at once."""
    for endpoint in claimed:
        await _update_claimed(session, endpoint, lease_until=func.now())


async def record_test(session: AsyncSession, endpoint_id: UUID, delivery: NewDelivery) -> bool:
    """Add a test message to the log of an endpoint; False if that was deleted meanwhile."""
    statement = select(_COLUMNS.id).where(_COLUMNS.id == endpoint_id)
    if await session.scalar(statement.with_for_update(read=True, key_share=True)) is None:
        return False
    await _insert_delivery(session, endpoint_id, delivery)
    return True


async def _insert_delivery(session: AsyncSession, endpoint_id: UUID, delivery: NewDelivery) -> None:
    """Add an attempt to the log of an endpoint."""
    values = {name: getattr(delivery, name) for name in delivery.__slots__}
    await session.execute(insert(WEBHOOK_DELIVERIES), {"endpoint_id": endpoint_id, **values})


async def _update_claimed(session: AsyncSession, endpoint: ClaimedEndpoint, **values: Any) -> bool:
    """Set columns of an endpoint if this claim is still the last one."""
    statement = (
        update(WEBHOOK_ENDPOINTS)
        .where(_COLUMNS.id == endpoint.id, _COLUMNS.fence == endpoint.fence)
        .values(**values)
        .returning(_COLUMNS.id)
    )
    return (await session.execute(statement)).scalar_one_or_none() is not None


async def prune_deliveries(session: AsyncSession, *, days: float) -> int:
    """Delete attempts that are older than the retention, or beyond the number that is kept."""
    old = WebhookDelivery.created_at < func.now() - timedelta(days=days)
    deleted = await delete_rows(session, WebhookDelivery, old, PRUNED_PER_CALL)
    return deleted or await _prune_surplus(session)


async def _prune_surplus(session: AsyncSession) -> int:
    """Delete the attempts of each endpoint before its newest ones."""
    oldest_kept = (
        select(WEBHOOK_DELIVERIES.c.id)
        .where(WEBHOOK_DELIVERIES.c.endpoint_id == _COLUMNS.id)
        .order_by(WEBHOOK_DELIVERIES.c.id.desc())
        .offset(MAX_KEPT_DELIVERIES - 1)
        .limit(1)
        .scalar_subquery()
    )
    deleted = 0
    for endpoint_id, oldest in (await session.execute(select(_COLUMNS.id, oldest_kept))).all():
        if oldest is not None:
            surplus = (WebhookDelivery.endpoint_id == endpoint_id) & (WebhookDelivery.id < oldest)
            deleted += await delete_rows(session, WebhookDelivery, surplus, PRUNED_PER_CALL)
    return deleted
