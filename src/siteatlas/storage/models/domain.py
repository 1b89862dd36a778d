"""Domains: one row per site that was ever submitted."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Double, ForeignKey, Index, Integer, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum


class LastScanStatus(StrEnum):
    """How the last scan of a site ended; `partial` when something of the site is missing."""

    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"


class Domain(Base):
    """A site: host without a leading `www.`, with its port when that is not the default.

    The counters are of all that is stored, as of the last published scan; `missing_count` is how
    many of the listed URLs are missing from their sitemaps without proof that they were removed.
    `baseline_scan_id` is the first complete scan: URL events exist only after it. `next_scan_at`
    is set while the site is watched; a paused site keeps it but is not scanned. A deleted site has
    given its name away, see `storage.statements.domains.tombstone`.
    """

    __tablename__ = "domains"
    __table_args__ = (
        Index(
            "ix_domains_due",
            "next_scan_at",
            postgresql_where=text("watched AND NOT paused AND deleted_at IS NULL"),
        ),
        Index(
            "ix_domains_deleted_at", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")
        ),
        Index("ix_domains_tags", "tags", postgresql_using="gin"),
        Index(
            "ix_domains_removals_held",
            "removals_held_since",
            postgresql_where=text("removals_held_since IS NOT NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    domain: Mapped[str] = mapped_column(unique=True)
    origin: Mapped[str | None]
    base_url: Mapped[str]
    watched: Mapped[bool] = mapped_column(server_default=text("false"))
    paused: Mapped[bool] = mapped_column(server_default=text("false"))
    scan_interval_hours: Mapped[float | None] = mapped_column(Double)
    next_scan_at: Mapped[datetime | None]
    max_pages: Mapped[int | None]
    last_scan_at: Mapped[datetime | None]
    last_scan_status: Mapped[LastScanStatus | None] = mapped_column(TextEnum(LastScanStatus))
    last_error_code: Mapped[str | None]
    failures_in_a_row: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    url_count: Mapped[int] = mapped_column(server_default=text("0"))
    distinct_url_count: Mapped[int] = mapped_column(server_default=text("0"))
    sitemap_count: Mapped[int] = mapped_column(server_default=text("0"))
    missing_count: Mapped[int] = mapped_column(server_default=text("0"))
    baseline_scan_id: Mapped[int | None]
    removals_held_since: Mapped[datetime | None]
    last_published_seq: Mapped[int | None]
    tags: Mapped[list[str]] = mapped_column(ARRAY(Text()), server_default=text("'{}'"))
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]
    deleted_at: Mapped[datetime | None]
