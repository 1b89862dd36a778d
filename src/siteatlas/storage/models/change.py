"""The change feed: its head, changes of URLs, and events of documents and domains."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Identity, Index, SmallInteger, func, text
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum, one_of


class ChangeKind(StrEnum):
    """What happened to a URL of a site, or (`changed`, `duplicate_*`) to one entry of it."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    MOVED = "moved"
    EXPIRED = "expired"
    BACK = "back"
    DUPLICATE_ADDED = "duplicate_added"
    DUPLICATE_REMOVED = "duplicate_removed"


class FeedEventKind(StrEnum):
    """What happened to a document or a domain."""

    BASELINE = "baseline"
    SITEMAP_ADDED = "sitemap_added"
    SITEMAP_GONE = "sitemap_gone"
    LASTMOD_DISTRUSTED = "lastmod_distrusted"
    REMOVALS_HELD = "removals_held"
    ROBOTS_CHANGED = "robots_changed"
    ORIGIN_CHANGED = "origin_changed"
    SCAN_FAILED = "scan_failed"
    DOMAIN_FORGOTTEN = "domain_forgotten"


class RemovalEvidence(StrEnum):
    """Why a missing URL counts as removed.

    `complete`: a complete scan of the whole site. `confirmed`: a later read missed it again.
    `timeout`: it was held for too long. `released`: a user ended the hold.
    """

    COMPLETE = "complete"
    CONFIRMED = "confirmed"
    TIMEOUT = "timeout"
    RELEASED = "released"


class FeedHead(Base):
    """The only row of the feed: its last number, and from which number on it is retained.

    Events up to `pruned_to` have been deleted; those from there to `retained_from` are being.

    Locked last in every transaction that publishes, just before COMMIT, so that numbers become
    visible in their order. `feed_id` is renewed by a restore: cursors of another feed are refused.
    """

    __tablename__ = "feed_head"
    __table_args__ = (
        CheckConstraint("id = 1", name="one_row"),
        {
            "postgresql_with": {
                "fillfactor": 10,
                "autovacuum_vacuum_threshold": 50,
                "autovacuum_vacuum_scale_factor": 0,
            }
        },
    )

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(server_default=text("0"))
    retained_from: Mapped[int] = mapped_column(server_default=text("0"))
    pruned_to: Mapped[int] = mapped_column(server_default=text("0"))
    feed_id: Mapped[UUID] = mapped_column(server_default=func.gen_random_uuid())


class UrlChange(Base):
    """The change of one entry in one scan; visible once the scan is published.

    `before` and `after` are the whole listed state. No foreign keys, for the rate of writing.
    """

    __tablename__ = "url_changes"
    __table_args__ = (
        one_of("kind", ChangeKind),
        Index("ix_url_changes_sitemap_id_url_hash_scan_id", "sitemap_id", "url_hash", "scan_id"),
        Index(
            "ix_url_changes_previous_sitemap_id_url_hash",
            "previous_sitemap_id",
            "url_hash",
            postgresql_where=text("previous_sitemap_id IS NOT NULL"),
        ),
    )

    scan_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sitemap_id: Mapped[UUID] = mapped_column(primary_key=True)
    url_hash: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[ChangeKind] = mapped_column(TextEnum(ChangeKind))
    url: Mapped[str]
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
    previous_sitemap_id: Mapped[UUID | None]
    evidence: Mapped[RemovalEvidence | None] = mapped_column(TextEnum(RemovalEvidence))
    not_before: Mapped[datetime | None]
    not_after: Mapped[datetime | None]


class FeedEvent(Base):
    """An event of a document or a domain. Ids without foreign keys: it may outlive its domain.

    An event of a scan has its `scan_id` and gets the number of that scan; any other has its own
    number, `seq`.
    """

    __tablename__ = "feed_events"
    __table_args__ = (
        one_of("kind", FeedEventKind),
        Index(
            "ix_feed_events_scan_id",
            "scan_id",
            "id",
            postgresql_where=text("scan_id IS NOT NULL"),
        ),
        Index("ix_feed_events_seq", "seq", "id", postgresql_where=text("seq IS NOT NULL")),
        Index(
            "ix_feed_events_domain_id_seq",
            "domain_id",
            "seq",
            postgresql_where=text("seq IS NOT NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    scan_id: Mapped[int | None]
    seq: Mapped[int | None]
    domain_id: Mapped[UUID]
    domain: Mapped[str]
    kind: Mapped[FeedEventKind] = mapped_column(TextEnum(FeedEventKind))
    sitemap_id: Mapped[UUID | None]
    sitemap: Mapped[str | None]
    data: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    not_before: Mapped[datetime | None]
    not_after: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
