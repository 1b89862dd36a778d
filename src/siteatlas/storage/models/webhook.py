"""Webhook endpoints and the log of what was sent to them.

Messages are not stored: they are built from the change feed, in which an endpoint has a position.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Double, ForeignKey, Identity, Index, Integer, SmallInteger, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum, one_of


class MessageType(StrEnum):
    """What a webhook message is about."""

    SCAN_PUBLISHED = "scan.published"
    SCAN_FAILED = "scan.failed"
    REMOVALS_HELD = "removals.held"
    ROBOTS_CHANGED = "robots.changed"
    TEST = "webhook.test"


class DisabledReason(StrEnum):
    """Why an endpoint gets no messages.

    `failing`: every attempt at a message failed, for days. `gone`: it answered 410. `requested`:
    a user disabled it.
    """

    FAILING = "failing"
    GONE = "gone"
    REQUESTED = "requested"


class WebhookEndpoint(Base):
    """Who receives which messages, and how far in the feed.

    All messages up to the one of rank `position_rank` of the number `position` were delivered or
    were not for this endpoint. A process holds the endpoint until `lease_until`; `fence` grows with
    each claim and each change, and a result with an older one is refused. `failures` counts the
    failed attempts at the message just behind the position. Until `previous_secret_until` messages
    are signed with both secrets. `domains` is null for all sites.
    """

    __tablename__ = "webhook_endpoints"
    __table_args__ = (one_of("disabled_reason", DisabledReason),)

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    url: Mapped[str]
    description: Mapped[str] = mapped_column(server_default=text("''"))
    types: Mapped[list[str]]
    domains: Mapped[list[str] | None] = mapped_column(JSONB(none_as_null=True))
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[CreatedAt]
    secret: Mapped[str]
    previous_secret: Mapped[str | None]
    previous_secret_until: Mapped[datetime | None]
    position: Mapped[int]
    position_rank: Mapped[int] = mapped_column(SmallInteger)
    failures: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    failing_since: Mapped[datetime | None]
    next_attempt_at: Mapped[datetime | None]
    last_attempt_at: Mapped[datetime | None]
    last_delivered_at: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_reason: Mapped[DisabledReason | None] = mapped_column(TextEnum(DisabledReason))
    fence: Mapped[int] = mapped_column(server_default=text("0"))
    lease_until: Mapped[datetime | None]


class WebhookDelivery(Base):
    """One attempt to deliver a message; `http_status` is null if there was no response."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        one_of("type", MessageType),
        Index("ix_webhook_deliveries_endpoint_id_id", "endpoint_id", text("id DESC")),
        Index("ix_webhook_deliveries_created_at", "created_at"),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    endpoint_id: Mapped[UUID] = mapped_column(
        ForeignKey("webhook_endpoints.id", ondelete="CASCADE")
    )
    message_id: Mapped[str]
    type: Mapped[MessageType] = mapped_column(TextEnum(MessageType))
    seq: Mapped[int | None]
    domain: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(Integer)
    delivered: Mapped[bool]
    http_status: Mapped[int | None] = mapped_column(Integer)
    error_code: Mapped[str | None]
    seconds: Mapped[float] = mapped_column(Double)
    created_at: Mapped[CreatedAt]
