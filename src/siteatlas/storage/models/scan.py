"""Scans, and the result of each scan for each document."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Double, ForeignKey, Identity, Index, Integer, Sequence, text
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum, one_of


class ScanState(StrEnum):
    """`published` scans are the ones that readers see."""

    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SitemapScanState(StrEnum):
    """`pending` documents are the frontier from which a later attempt continues."""

    PENDING = "pending"
    COMPLETE = "complete"
    UNCHANGED = "unchanged"
    CUT = "cut"
    UNREAD = "unread"


PUBLISHED_SEQUENCE = Sequence("scans_published_seq", metadata=Base.metadata)


class Scan(Base):
    """One scan of a site, over all attempts of its job. It outlives the job."""

    __tablename__ = "scans"
    __table_args__ = (
        one_of("state", ScanState),
        Index("ix_scans_domain_id_id", "domain_id", text("id DESC")),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    job_id: Mapped[int] = mapped_column(unique=True)
    job_uuid: Mapped[UUID]
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    state: Mapped[ScanState] = mapped_column(TextEnum(ScanState), server_default=text("'running'"))
    partial: Mapped[bool] = mapped_column(server_default=text("false"))
    reasons: Mapped[list[str]] = mapped_column(server_default=text("'[]'"))
    error_code: Mapped[str | None]
    max_pages: Mapped[int | None]
    sitemap_count: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    url_count: Mapped[int] = mapped_column(server_default=text("0"))
    distinct_url_count: Mapped[int] = mapped_column(server_default=text("0"))
    started_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
    published_seq: Mapped[int | None] = mapped_column(unique=True)


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
