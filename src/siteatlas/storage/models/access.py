"""Access: keys, the browser sessions that were opened with them, limits, and the audit trail.

Secrets are stored as SHA-256 only. Whether a key was ever made decides whether the installation is
open, so that keys are revoked, never deleted, except by `siteatlas keys reset`.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Identity, Index, Integer, LargeBinary, func
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt


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


class AuditEvent(Base):
    """Who did what, from where, with what result. Never updated; no secrets.

    No foreign keys: it outlives users and keys, and their names are stored with it.
    """

    __tablename__ = "audit_events"
    __table_args__ = (Index("ix_audit_events_created_at", "created_at"),)

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
