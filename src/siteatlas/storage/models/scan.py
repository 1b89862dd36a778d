"""Scans, and the result of each scan for each document."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Double, ForeignKey, Identity, Index, Integer, text
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
