"""Read statements for webhook endpoints and their deliveries; never their secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import WebhookNotFound
from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, bigint_key, page_size, uuid_key
from siteatlas.insights.views import select_view
from siteatlas.storage.models import (
    DisabledReason,
    FeedHead,
    MessageType,
    WebhookDelivery,
    WebhookEndpoint,
)
from siteatlas.storage.statements.webhooks import LAST_RANK

STATUSES = ("active", "failing", "disabled")


@dataclass(frozen=True, slots=True)
class WebhookView:
    """A webhook endpoint; `status` is active, failing or disabled, no domains means all sites.

    All messages up to the number `delivered_seq` were delivered or were not for this endpoint;
    `head_seq` is the last number of the feed.
    """

    id: UUID
    url: str
    description: str
    types: list[str]
    domains: list[str] | None
    status: str
    disabled_reason: DisabledReason | None
    delivered_seq: int
    head_seq: int
    failures: int
    failing_since: datetime | None
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    last_delivered_at: datetime | None
    disabled_at: datetime | None
    previous_secret_until: datetime | None
    created_by: UUID
    created_at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """One attempt to deliver a message; without a response `http_status` is None."""

    id: int
    message_id: str
    type: MessageType
    seq: int | None
    domain: str | None
    attempt: int
    delivered: bool
    http_status: int | None
    error_code: str | None
    seconds: float
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WebhookLoad:
    """The number of endpoints by status, and how many numbers the slowest active one is behind."""

    endpoints: dict[str, int]
    behind: int


_STATUS = case(
    (WebhookEndpoint.disabled_at.is_not(None), "disabled"),
    (WebhookEndpoint.failures > 0, "failing"),
    else_="active",
)
_IS_WHOLE = WebhookEndpoint.position_rank == LAST_RANK
_DELIVERED = case((_IS_WHOLE, WebhookEndpoint.position), else_=WebhookEndpoint.position - 1)
_STILL_VALID = WebhookEndpoint.previous_secret_until > func.now()
SELECT_WEBHOOKS = select_view(
    WebhookView,
    WebhookEndpoint,
    status=_STATUS,
    delivered_seq=_DELIVERED,
    head_seq=select(FeedHead.seq).scalar_subquery(),
    previous_secret_until=case((_STILL_VALID, WebhookEndpoint.previous_secret_until)),
)


async def list_webhooks(
    session: AsyncSession, *, limit: int | None = None, cursor: str | None = None
) -> Page[WebhookView]:
    """All endpoints by id, including disabled ones."""
    scope = CursorScope("webhooks")
    after = scope.read(cursor, uuid_key)
    found = SELECT_WEBHOOKS if after is None else SELECT_WEBHOOKS.where(WebhookEndpoint.id > after)
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
    found = await session.execute(SELECT_WEBHOOKS.where(WebhookEndpoint.id == endpoint_id))
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
    counted = select(_STATUS.label("status"), func.count(), func.min(_DELIVERED), head)
    rows = (await session.execute(counted.group_by(_STATUS))).all()
    behind = [head - oldest for status, _, oldest, head in rows if status != "disabled"]
    counts = {status: count for status, count, *_ in rows}
    return WebhookLoad({word: counts.get(word, 0) for word in STATUSES}, max(behind, default=0))
