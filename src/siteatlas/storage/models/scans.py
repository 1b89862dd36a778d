"""Scans, the result of each scan for each document, and the changes that make up the feed."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum, one_of


class ScanState(StrEnum):
    """`published` scans are the ones that readers see."""

    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ScanScope(StrEnum):
    """How much of a site a scan covers. Only a `full` one can prove that a document vanished.

    `light`: the schedule chose the documents to read. `filtered`: a filter or `max_pages` left some
    out. `document`: a single document.
    """

    FULL = "full"
    LIGHT = "light"
    FILTERED = "filtered"
    DOCUMENT = "document"


class Scan(Base):
    """One scan of a site, over all attempts of its job. It outlives the job.

    `url_count` and `distinct_url_count` are what the site lists after the scan, `read_url_count` is
    what the scan read. `published_seq` is its number in the change feed, `change_counts` the number
    of changes by kind. `removal_decision` is stored before removals are written, so that a later
    attempt continues with the same decision; publication clears it.
    """

    __tablename__ = "scans"
    __table_args__ = (
        one_of("state", ScanState),
        one_of("scope", ScanScope),
        Index("ix_scans_domain_id_id", "domain_id", text("id DESC")),
        Index(
            "ix_scans_domain_id_published_seq",
            "domain_id",
            "published_seq",
            postgresql_where=text("published_seq IS NOT NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    job_id: Mapped[int] = mapped_column(unique=True)
    job_uuid: Mapped[UUID]
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    state: Mapped[ScanState] = mapped_column(TextEnum(ScanState), server_default=text("'running'"))
    scope: Mapped[ScanScope] = mapped_column(TextEnum(ScanScope), server_default=text("'full'"))
    partial: Mapped[bool] = mapped_column(server_default=text("false"))
    reasons: Mapped[list[str]] = mapped_column(server_default=text("'[]'"))
    error_code: Mapped[str | None]
    max_pages: Mapped[int | None]
    sitemap_count: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    url_count: Mapped[int] = mapped_column(server_default=text("0"))
    distinct_url_count: Mapped[int] = mapped_column(server_default=text("0"))
    read_url_count: Mapped[int] = mapped_column(server_default=text("0"))
    change_counts: Mapped[dict[str, int] | None]
    removal_decision: Mapped[dict[str, Any] | None]
    started_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
    published_seq: Mapped[int | None] = mapped_column(unique=True)


class SitemapScanState(StrEnum):
    """`pending` documents are the frontier from which a later attempt continues."""

    PENDING = "pending"
    COMPLETE = "complete"
    UNCHANGED = "unchanged"
    CUT = "cut"
    UNREAD = "unread"


class SitemapScan(Base):
    """One document in one scan."""

    __tablename__ = "sitemap_scans"
    __table_args__ = (
        one_of("state", SitemapScanState),
        Index("ix_sitemap_scans_sitemap_id_scan_id", "sitemap_id", text("scan_id DESC")),
    )

    scan_id: Mapped[int] = mapped_column(
        ForeignKey("scans.id", ondelete="CASCADE"), primary_key=True
    )
    sitemap_id: Mapped[UUID] = mapped_column(
        ForeignKey("sitemaps.id", ondelete="CASCADE"), primary_key=True
    )
    state: Mapped[SitemapScanState] = mapped_column(
        TextEnum(SitemapScanState), server_default=text("'pending'")
    )
    http_status: Mapped[int | None] = mapped_column(Integer)
    error_code: Mapped[str | None]
    url_count: Mapped[int] = mapped_column(server_default=text("0"))
    skipped_count: Mapped[int] = mapped_column(server_default=text("0"))
    wire_bytes: Mapped[int] = mapped_column(server_default=text("0"))
    decoded_bytes: Mapped[int] = mapped_column(server_default=text("0"))
    seconds: Mapped[float] = mapped_column(Double, server_default=text("0"))
    problems: Mapped[dict[str, int] | None]
    finished_at: Mapped[datetime | None]


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


class RemovalEvidence(StrEnum):
    """Why a missing URL counts as removed.

    `complete`: a complete scan of the whole site. `confirmed`: a later read missed it again.
    `timeout`: it was held for too long. `released`: a user ended the hold.
    """

    COMPLETE = "complete"
    CONFIRMED = "confirmed"
    TIMEOUT = "timeout"
    RELEASED = "released"


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


class FeedEventKind(StrEnum):
    """What happened to a document or a domain."""

    BASELINE = "baseline"
    SITEMAP_ADDED = "sitemap_added"
    SITEMAP_GONE = "sitemap_gone"
    LASTMOD_DISTRUSTED = "lastmod_distrusted"
    REMOVALS_HELD = "removals_held"
    ROBOTS_CHANGED = "robots_changed"
    ORIGIN_CHANGED = "origin_changed"
    FINDING_NEW = "finding_new"
    FINDING_RESOLVED = "finding_resolved"
    SCAN_FAILED = "scan_failed"
    DOMAIN_FORGOTTEN = "domain_forgotten"


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
