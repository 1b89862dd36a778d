"""Access: keys, the browser sessions that were opened with them, limits, the audit trail, webhooks.

Secrets of keys and sessions are stored as SHA-256 only; those of webhooks sign messages and are
stored as they are. Whether a key was ever made decides whether the installation is open, so that
keys are revoked, never deleted, except by `siteatlas keys reset`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import (
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum, one_of


class ApiKey(Base):
    """An access key of a user; `id` is the public part of its text."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str]
    scopes: Mapped[list[str]]
    key_hash: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class BrowserSession(Base):
    """A login of the dashboard; it ends with its key, when idle too long, or at `expires_at`."""

    __tablename__ = "browser_sessions"
    __table_args__ = (Index("ix_browser_sessions_key_id", "key_id"),)

    token_hash: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    id: Mapped[UUID] = mapped_column(unique=True, server_default=func.gen_random_uuid())
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    created_at: Mapped[CreatedAt]
    last_used_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime]


class RateLimit(Base):
    """How much of a limit is used: from `paid_off_at` on nothing is used.

    Unlogged: a crash of the server forgets the limits, which does no harm.
    """

    __tablename__ = "rate_limits"
    __table_args__ = ({"prefixes": ["UNLOGGED"]},)

    subject: Mapped[str] = mapped_column(primary_key=True)
    paid_off_at: Mapped[datetime]


BACKED_UP = "db backup ended"


class AuditEvent(Base):
    """Who did what, from where, with what result. Never updated; no secrets.

    No foreign keys: it outlives users and keys, and their names are stored with it.
    """

    __tablename__ = "audit_events"
    __table_args__ = (
        Index("ix_audit_events_created_at", "created_at"),
        Index(
            "ix_audit_events_backed_up",
            "created_at",
            postgresql_where=text(f"action = '{BACKED_UP}'"),
        ),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    created_at: Mapped[CreatedAt]
    user_id: Mapped[UUID | None]
    user_name: Mapped[str | None]
    key_id: Mapped[str | None]
    address: Mapped[str | None]
    action: Mapped[str]
    target: Mapped[str | None]
    status: Mapped[int] = mapped_column(Integer)
    error_code: Mapped[str | None]
    request_id: Mapped[str | None]


class MessageType(StrEnum):
    """What a webhook message is about."""

    SCAN_PUBLISHED = "scan.published"
    SCAN_FAILED = "scan.failed"
    REMOVALS_HELD = "removals.held"
    ROBOTS_CHANGED = "robots.changed"
    FINDINGS_NEW = "findings.new"
    FINDINGS_RESOLVED = "findings.resolved"
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
